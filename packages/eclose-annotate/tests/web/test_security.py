"""What a stranger, a colleague and a broken browser may try, and what each is answered."""

from __future__ import annotations

import asyncio
import gzip
import re
from hashlib import sha256
from urllib.parse import quote

import pytest
from sqlalchemy import text

from eclose_annotate import queues
from eclose_annotate.people.passwords import LoginAttemptCounter, LoginAttemptLimits
from tests.projects import choose_key
from tests.web.canaries import CREW, NOBODY
from tests.web.crowd import asked, crowd, routes
from tests.web.sweeps import STATIC, Sweep
from tests.web.trying import every_address, give_passwords, login, state

OPEN = {("POST", "/login"), ("POST", "/invitation/{token}")}
"""Forms of people without a session, which have no token to carry: where they come from is all there is to check."""


# --- what every answer says ------------------------------------------------------------------------------------------

ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
POLICY = ("default-src 'none'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'")


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_headers_of_every_answer(one, tls):
    with crowd(one, tls=tls) as everybody:
        answers = [
            everybody.ask(method, nick, path)
            for method, _, path in every_address(everybody)
            for nick in ("ann", "lea", NOBODY)
        ]
        answers += [everybody.get(NOBODY, path) for path in ("/nothing", "/static/", "/static/nothing")]
        assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
        answers += [everybody.get(NOBODY, path) for path in STATIC]
        answers += [
            everybody.ask(method, "ann", "/") for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "FOO")
        ]
        answers += [
            everybody.get("ann", "/", host="elsewhere.example"),
            everybody.post("ann", "/take", **{"sec-fetch-site": "cross-site"}),
            everybody.ask("POST", "ann", "/take", b"", {"content-length": "99999999"}),
            everybody.ask("POST", "ann", "/take", b"{}", {"content-type": "application/json"}),
        ]
    assert {200, 303, 403, 404, 405, 413, 415, 421} <= {answer.status_code for answer in answers}
    for answer in answers:
        assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
        policy = answer.headers["content-security-policy"]
        assert all(part in policy for part in POLICY)
        assert "unsafe" not in policy
        assert "*" not in policy
        assert ("strict-transport-security" in answer.headers) is tls
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
        kind = answer.headers.get("content-type", "")
        assert not answer.content or "charset=utf-8" in kind or kind == "image/svg+xml"
    assert "max-age=31536000" in (answers[0].headers.get("strict-transport-security") or "max-age=31536000")


@pytest.mark.slow
def test_the_policy_needs_nothing_inline(everybody):
    """What the policy forbids is not on the pages either: no script, style or handler within them."""
    task = next(task.id for task in everybody.study.tasks() if task.nick == "ann")
    for path in ("/login", "/", "/finished", "/account", f"/tasks/{task}", "/dashboard"):
        page = everybody.get("lea" if path == "/dashboard" else "ann", path).text
        assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|javascript:|https?://(?!127)", page)


@pytest.mark.parametrize("tls, wanted", [(False, "eclose="), (True, "__Host-eclose=")])
def test_the_cookie_is_for_this_server_alone(one, tls, wanted):
    give_passwords(one, "ann")
    with crowd(one, tls=tls) as everybody:
        header = login(everybody, "ann").headers["set-cookie"]
        gone = everybody.post("bob", "/logout").headers["set-cookie"]
    assert header.startswith(wanted)
    assert len(header.partition("=")[2].partition(";")[0]) >= 43, "256 bits"
    for cookie in (header, gone):
        assert {part.strip().lower() for part in cookie.split(";")[1:]} >= {"httponly", "path=/", "samesite=strict"}
        assert ("Secure" in cookie) is tls
        assert "domain" not in cookie.lower()


# --- forms that are not ours -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_form_needs_the_token_of_its_session(one, everybody):
    """Without it, with a wrong one, with a colleague's: nothing is done, whoever asks."""
    before = state(one)
    statuses = set()
    for method, template, path in every_address(everybody):
        if method != "POST" or (method, template) in OPEN:
            continue
        for nick in ("ann", "eve", "lea"):
            for csrf in (None, "", "0" * 64, one.csrf("bob"), one.csrf(nick)[:-1]):
                answer = everybody.post(nick, path, csrf=csrf)
                assert answer.status_code in (403, 404), (nick, path)
                statuses.add((template, answer.status_code))
    checked = {template for template, status in statuses if status == 403}
    # Of a request that does not exist, nothing is said before its token is looked at; a study has no pages of `label`.
    post_paths = {path for method, path in routes(everybody.app) if method == "POST"} - {path for _, path in OPEN}
    assert post_paths - checked == {"/amend/{reopening}", "/labels/finish", "/labels/{task}/{name}/correct"}
    assert state(one) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin, cross-site"},
        {"sec-fetch-site": None, "origin": "https://attacker.example"},
        {"sec-fetch-site": None, "origin": "null"},
        {"sec-fetch-site": None, "origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": None, "origin": "http://127.0.0.1.attacker.example"},
        {"sec-fetch-site": None, "origin": "http://["},
        {"sec-fetch-site": None, "origin": ""},
    ],
)
def test_a_form_from_another_page_is_refused_everywhere(one, everybody, headers):
    before = state(one)
    for method, _, path in every_address(everybody):
        if method == "POST":
            assert everybody.post("ann", path, **headers).status_code == 403
    assert state(one) == before


def test_a_form_of_our_own_page_is_taken(one, everybody):
    own = {"sec-fetch-site": None, "origin": "http://127.0.0.1"}
    assert everybody.post("eve", "/take", **own).status_code == 303
    assert everybody.post("eve", "/take", **{"sec-fetch-site": None}).status_code == 303


HOSTS = ["attacker.example", "127.0.0.1.attacker.example", "", None, "[", "a@127.0.0.2", "::", "127.0.0.1:8300",
         "127.0.0.1:x", "attacker@127.0.0.1"]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_another_name_of_the_server_is_refused(everybody, host):
    assert everybody.ask("GET", "ann", "/", b"", {"host": host}).status_code == 421


def test_links_of_invitations_name_the_configured_server(one):
    with crowd(one, url="https://annotate.example.org") as everybody:
        page = everybody.post("lea", "/dashboard/invite", {"names": "zoe", "role": "adjudicator"})
    assert re.search(r"https://annotate\.example\.org/invitation/[\w-]{43}", page.text)
    assert "127.0.0.1" not in page.text


def test_too_many_requests_at_once_get_503_with_all_headers(one):
    with crowd(one) as everybody:
        everybody.app._most = 0
        answer = everybody.get("ann", "/")
    assert answer.status_code == 503
    assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_with_two_lengths_is_refused(one, everybody, method):
    before = state(one)
    lengths = {"content-length": "5", "transfer-encoding": "chunked"}
    answer = everybody.ask(method, "eve", "/take", b"csrf=", lengths)
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")
    assert state(one) == before


def test_static_files_are_kept_by_their_content_and_compressed(everybody):
    page = everybody.get(NOBODY, "/login").text
    urls = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert {url.partition("?")[0] for url in urls} == {
        f"/static/{name}" for name in ("mark.svg", "annotate.css", "annotate.js")
    }
    for url in urls:
        plain, packed = everybody.get(NOBODY, url), everybody.get(NOBODY, url, **{"accept-encoding": "br, gzip"})
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert (packed.headers["content-encoding"], gzip.decompress(packed.content)) == ("gzip", plain.content)
        assert packed.headers["vary"] == "accept-encoding"
        # Another content has another URL, and what is asked for without one is asked for again.
        path, _, version = url.partition("?v=")
        assert sha256(plain.content).hexdigest().startswith(version)
        assert everybody.get(NOBODY, path + "?v=other").headers["cache-control"] == "no-cache"
        again = everybody.get(NOBODY, path, **{"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_pages_are_never_compressed(everybody):
    """A compressed page with a secret and a text of another person would tell the secret by its length."""
    assert "content-encoding" not in everybody.get("ann", "/account", **{"accept-encoding": "gzip"}).headers


@pytest.mark.slow
def test_looking_changes_nothing(one, everybody):
    """No address that is only opened changes anything."""
    before = state(one)
    for method, template, _ in every_address(everybody):
        for nick in ("ann", "eve", "lea", NOBODY) if method == "GET" else ():
            for path in Sweep(one, everybody, thorough=False).filled(template, nick):
                everybody.get(nick, path + "?csrf=" + one.csrf(nick) + "&name=x&role=lead")
    assert state(one) == before


def test_head_is_answered_as_get_without_a_body(one, everybody):
    before = state(one)
    task = next(task.id for task in one.tasks() if task.nick == "ann")
    for path in ("/login", "/", "/finished", "/nothing", "/static/annotate.css"):
        look, page = everybody.ask("HEAD", "ann", path), everybody.get("ann", path)
        assert (look.status_code, look.content) == (page.status_code, b"")
        assert look.headers.get("content-length") == page.headers.get("content-length") != "0"
    assert everybody.ask("HEAD", NOBODY, f"/tasks/{task}").status_code == 303
    # A look would use up the link of a single user.
    assert everybody.ask("HEAD", NOBODY, "/open/token").status_code == 405
    assert state(one) == before


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PROPFIND"])
def test_no_other_method_does_anything(one, everybody, method):
    before = state(one)
    for _, _, path in every_address(everybody):
        assert everybody.ask(method, "ann", path).status_code in (303, 404, 405)
    assert state(one) == before


def test_a_websocket_is_turned_away(everybody):
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "websocket", "path": "/static/annotate.css", "headers": []}
    asyncio.run(everybody.app(scope, None, send))
    assert [message["type"] for message in messages] == ["websocket.close"]


# --- what is another's -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tasks_of_others_answer_as_unknown_tasks(one, everybody):
    """Every kind of request for every task, by everybody but its owner: 404, in the same bytes as for nothing."""
    ways = [("GET", ""), *(("POST", f"/{name}{what}") for name in "AS" for what in ("", "/draft", "/undo"))]
    for nick in ("ann", "sue", "fay", "eve", "sol", "lea"):
        for method, rest in ways:
            fields = {} if rest.endswith("undo") else {"key": "k", "1.sound": "yes"}
            paths = [f"/tasks/{task.id}{rest}" for task in one.tasks() if task.nick != nick]
            answers = [
                everybody.get(nick, path) if method == "GET" else everybody.post(nick, path, fields)
                for path in (*paths[::3], f"/tasks/nothing{rest}", f"/tasks/{'x' * 500}{rest}", f"/tasks/'{rest}")
            ]
            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}


def test_an_undone_pass_is_open_to_one_person(one, everybody):
    sweep = Sweep(one, everybody, thorough=False)
    task = next(task for task in one.tasks() if task.nick == "ann" and task.place == 1)
    form = {"key": "k", "1.substantive": "no", "2.substantive": "no"}
    choose_key(one.project, task.id, "A", "k")
    assert everybody.post("ann", f"/tasks/{task.id}/A", form).status_code == 303
    for nick in ("bob", "eve", "sue", "lea"):
        assert everybody.post(nick, f"/tasks/{task.id}/A/undo").status_code == 404
    assert everybody.post("ann", f"/tasks/{task.id}/A/undo").status_code == 303
    sweep.truth.given[task.id]["A"] = ([], "k")
    sweep.truth.note_leaves()
    (leave,) = sweep.truth.leaves
    for nick in ("bob", "cyd", "eve", "sue", "lea"):
        assert everybody.get(nick, f"/amend/{leave}").status_code == 404
        assert everybody.post(nick, f"/amend/{leave}", form).status_code == 404
    assert everybody.get("ann", f"/amend/{leave}").status_code == 200
    # Pass C shows more than A did.
    for name, field in (("B", "aligned"), ("C", "closed")):
        choose_key(one.project, task.id, name, "k")
        assert everybody.post("ann", f"/tasks/{task.id}/{name}", {"key": "k", f"1.{field}": "yes"}).status_code == 303
        for undone in "AB":
            assert everybody.post("ann", f"/tasks/{task.id}/{undone}/undo").status_code == 404


EVERYBODY = {"/", "/login", "/logout", "/account", "/guideline", "/training"}


@pytest.mark.slow
def test_a_page_of_another_role_does_not_exist(one, everybody):
    """The lead's pages for all others, and the pages of those who label for the lead."""
    before = state(one)
    for method, template, path in every_address(everybody):
        lead = template.startswith("/dashboard")
        if template in EVERYBODY or template.startswith(("/invitation", "/open")):
            continue
        for nick in CREW:
            answer = everybody.get(nick, path) if method == "GET" else everybody.post(nick, path, {"zz": "1"})
            if (nick == "lea") is not lead:
                assert answer.status_code == 404, (nick, method, path)
        answer = everybody.get(NOBODY, path) if method == "GET" else everybody.post(NOBODY, path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert state(one) == before


@pytest.mark.slow
def test_fields_that_were_not_asked_for_are_refused(one, everybody):
    """A form with one field too many does nothing, on every route and for whoever may use it."""
    before = state(one)
    extra = {"role": "lead", "person": "1", "pass": "D", "number": "4", "active": "1"}
    own = {nick: next((task.id for task in one.tasks() if task.nick == nick), "nothing") for nick in CREW}
    for method, template, path in every_address(everybody):
        for nick in ("ann", "eve", "lea") if method == "POST" else ():
            where = re.sub(r"/tasks/[^/]+/[A-Z]", f"/tasks/{own[nick]}/A", path)
            for name, value in extra.items():
                assert everybody.post(nick, where, {name: value}).status_code in (404, 422), (nick, template)
    assert state(one) == before


# --- what goes wrong -------------------------------------------------------------------------------------------------

SECRET = "a secret that went wrong"


def test_a_bug_is_in_the_log_and_not_on_the_page(one, everybody, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(queues, "find_next_task", broken)
    answer = everybody.get("ann", "/")
    assert answer.status_code == 500
    assert not [word for word in (SECRET, "Traceback", "RuntimeError", ".py", "line ") if word in answer.text]
    assert answer.headers["content-security-policy"]
    assert SECRET in caplog.text
    assert not [word for word in (one.csrf("ann"), one.keys["ann"]) if word in caplog.text]


def test_a_statement_that_fails_does_not_tell_the_log_what_it_was_given(one):
    with pytest.raises(Exception, match="hidden") as error, one.project.writing() as connection:
        connection.execute(text("INSERT INTO annotate_settings (name, value) VALUES (:a, NULL)"), {"a": SECRET})
    assert SECRET not in str(error.value)


def test_refusals_are_logged_with_who_and_when_and_without_tokens(one, everybody, caplog):
    task = next(task.id for task in one.tasks() if task.nick == "bob")
    everybody.get("ann", f"/tasks/{task}")
    everybody.get(NOBODY, "/invitation/a-token-that-is-secret")
    everybody.post("ann", "/take", csrf=None)
    everybody.get("ann", "/", host="attacker.example")
    text = caplog.text
    assert len(re.findall(r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00: ", text)) == 4
    assert f"404 for {one.names['ann']} at GET /tasks/{{task}}" in text
    assert f"403 for {one.names['ann']} at POST /take" in text
    assert not [word for word in (task, "a-token-that-is-secret", "attacker") if word in text]


def test_nothing_tells_what_there_is(everybody):
    for path in ("/docs", "/redoc", "/openapi.json", "/.git/config", "/static/", "/metrics", "/debug", "/favicon.ico"):
        assert everybody.get(NOBODY, path).status_code == 404


@pytest.mark.parametrize(
    "path",
    ["../app.py", "%2e%2e/app.py", "..%2fapp.py", "....//app.py", "%5c..%5capp.py", "/etc/passwd", "annotate.css%00",
     "annotate.css/../../app.py", "%252e%252e/app.py", "\\..\\app.py", "a" * 5_000, "%ff%fe"],
)  # fmt: skip
def test_static_files_are_all_that_is_served(everybody, path):
    answer = everybody.get(NOBODY, f"/static/{path}")
    assert answer.status_code in (404, 405)
    assert b"import" not in answer.content


# --- bodies ----------------------------------------------------------------------------------------------------------


def send(everybody, body, nick="ann", path="/take", **headers):
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return everybody.ask("POST", nick, path, body, kind | headers).status_code


def test_what_is_no_form_of_ours_is_refused(one, everybody):
    csrf = f"csrf={one.csrf('eve')}".encode()
    before = state(one)
    assert send(everybody, csrf, "eve", **{"content-type": "application/json"}) == 415
    assert send(everybody, csrf, "eve", **{"content-type": "multipart/form-data; boundary=x"}) == 415
    assert send(everybody, csrf, "eve", **{"content-type": "text/plain"}) == 415
    assert send(everybody, csrf + b"&" + csrf, "eve") == 422
    assert send(everybody, csrf + b"&zz", "eve") == 422
    assert send(everybody, csrf + b"\xff", "eve") == 422
    assert send(everybody, csrf + b"&zz=%00", "eve") == 422
    assert send(everybody, csrf + b"&a=1" * 10_000, "eve") == 422
    assert send(everybody, csrf + b"&a=" + b"x" * 600_000, "eve") == 413
    assert state(one) == before
    assert send(everybody, csrf, "eve", **{"content-type": "APPLICATION/x-www-form-urlencoded; charset=utf-8"}) == 303


@pytest.mark.parametrize("length", [None, "", "-1", "+5", "5.0", "0x5", "9" * 5_000, "\xb2", "524289"])
def test_a_length_that_is_none_is_refused(everybody, length):
    assert send(everybody, b"x", **{"content-length": length}) == 413


def test_a_body_that_is_longer_than_it_says_is_cut_off(one, everybody):
    """A server counts for itself; where it does not, the guard does."""
    head = [(b"host", b"127.0.0.1"), (b"content-length", b"10"), (b"cookie", f"eclose={one.keys['eve']}".encode())]
    head += [(b"content-type", b"application/x-www-form-urlencoded")]
    before = state(one)
    parts = [f"csrf={one.csrf('eve')}".encode(), *[b"&a=" + b"x" * 100_000] * 9]
    answer = everybody._runner.run(asked(everybody.app, "POST", "/take", head, parts))
    assert answer.status_code >= 400
    assert state(one) == before


ODD = ("\u202e", "\ud800", "'; DROP TABLE annotate_people; --", "${7*191}", "{{7*191}}", "%s%n", "\r\nSet-Cookie: a=b")


@pytest.mark.parametrize("odd", ODD)
def test_odd_texts_are_texts(one, odd):
    """Names, reasons and keys of any characters neither break anything nor come back as anything else."""
    with crowd(one, attempts=LoginAttemptCounter(LoginAttemptLimits("1000 per hour", "1000 per hour"))) as everybody:
        answers = [
            login(everybody, odd, odd),
            everybody.post("ann", f"/tasks/{quote(odd, errors='replace')}/A/undo"),
            everybody.post("lea", "/dashboard/invite", {"name": odd, "role": odd, "pool": odd}),
        ]
        assert [answer.status_code for answer in answers] == [401, 404, 422]
        assert not [answer for answer in answers if "1337" in answer.text or "set-cookie" in answer.headers]
        assert everybody.get("ann", "/").status_code == 200
