"""Pages in a browser without a server: what it asks for is answered from here, with the headers a server would send."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.resources import files
from urllib.parse import parse_qsl, urlsplit

ORIGIN = "http://annotate.test"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
LAPTOP, SMALL, PHONE = {"width": 1536, "height": 864}, {"width": 1229, "height": 691}, {"width": 390, "height": 844}
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
WATCH = """
window.pwned = []; window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective, event.blockedURI));
"""


class House:
    """Answers a browser, and remembers what was posted."""

    def __init__(self, pages: dict[str, str], *, policy: str | None = POLICY):
        self.pages, self.policy = pages, policy
        self.posts: list[tuple[str, dict[str, str]]] = []
        self.draft_status: int | None = 204
        """None: there is no connection."""

    def answer(self, route) -> None:
        """One request."""
        request, path = route.request, urlsplit(route.request.url).path
        headers = {"content-security-policy": self.policy} if self.policy else {}
        if not request.url.startswith(ORIGIN):
            route.abort()
        elif path.startswith("/static/"):
            text = (files("eclose_annotate.web") / "static" / path.removeprefix("/static/")).read_text("utf-8")
            route.fulfill(body=text, content_type=KINDS[path.rpartition(".")[2]], headers=headers)
        elif request.method == "POST":
            self._take(route, path, headers)
        elif path not in self.pages:
            route.fulfill(status=404, headers=headers)
        else:
            route.fulfill(body=self.pages[path], content_type="text/html; charset=utf-8", headers=headers)

    def _take(self, route, path, headers) -> None:
        draft = path.endswith("/draft")
        if draft and self.draft_status is None:
            return route.abort("connectionfailed")
        self.posts.append((path, dict(parse_qsl(route.request.post_data or "", keep_blank_values=True))))
        if draft:
            return route.fulfill(status=self.draft_status, headers=headers)
        return route.fulfill(body="<!doctype html><title>sent</title><h1 id=sent>sent</h1>", content_type="text/html")

    def entries(self, *, draft: bool = False) -> dict[str, str]:
        """What the last form said, without what is not about the material."""
        _, fields = [post for post in self.posts if post[0].endswith("/draft") is draft][-1]
        return {name: value for name, value in fields.items() if name not in ("csrf", "key")}


@contextmanager
def opened(browser, pages, path="/page", *, size=LAPTOP, scheme="light", policy=POLICY, script=True):
    """A page, watched: what it runs, asks for and complains of. A text alone is the page at ``/page``."""
    house = House(pages if isinstance(pages, dict) else {path: pages}, policy=policy)
    context = browser.new_context(viewport=size, color_scheme=scheme, java_script_enabled=script)
    context.add_init_script(WATCH)
    context.route("**/*", house.answer)
    tab = context.new_page()
    tab.events = []
    tab.on("pageerror", lambda error: tab.events.append(f"error {error}"))
    tab.on("console", lambda message: tab.events.append(f"console {message.text}"))
    tab.on("request", lambda request: request.url.startswith(ORIGIN) or tab.events.append(request.url))
    tab.on("dialog", lambda dialog: dialog.accept() if dialog.type == "beforeunload" else tab.events.append("dialog"))
    tab.on("popup", lambda _: tab.events.append("popup"))
    tab.goto(ORIGIN + path)
    try:
        yield tab, house
    finally:
        context.close()
