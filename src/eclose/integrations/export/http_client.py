"""HTTP client of the trace stores: bounded attempts, no redirects, and messages without keys."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from eclose.errors import EcloseError, SettingError, UserError
from eclose.models.openai.endpoint import check_base_url
from eclose.models.openai.failures import excerpt_server_text, parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import httpx2

    from eclose.integrations.export.scores import Delivery, ScoredResponse

_ATTEMPTS = 5
_LONGEST_WAIT = 30.0
_SECONDS = 30.0
_CONCURRENCY = 8
_LARGEST_REPLY = 8 * 2**20


class StoreRefusal(EcloseError):  # noqa: N818 - an outcome that is counted
    """A request that the store refused for what it says; other requests may be accepted."""

    def __init__(self, status: int, problem: str) -> None:
        self.status = status
        super().__init__(f"HTTP {status}: {problem}" if problem else f"HTTP {status}")


class StoreClient:
    """A connection to a trace store. Use it in a ``with`` block."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
        *,
        secret: str = "",
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx2  # noqa: PLC0415 - an extra

        self.base_url = check_base_url(base_url)
        self._secret = secret
        self._wait = wait
        # A redirect may lead to another host, which would receive the key.
        self._client = httpx2.Client(
            headers={"accept": "application/json", **(headers or {})},
            auth=login,
            timeout=_SECONDS,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        """Return the client; nothing is sent yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path."""
        return self._send("GET", path, None)

    def post(self, path: str, body: object) -> dict[str, Any]:
        """Send a JSON body; return the reply, or an empty object where it is none.

        Raises:
            StoreRefusal: The store refuses this body.
            SettingError: The store refuses the key.
            UserError: The store cannot be reached, or fails at every attempt.
        """
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: object) -> dict[str, Any]:
        import httpx2  # noqa: PLC0415 - an extra

        problem, pause = "", 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._wait(min(pause, _LONGEST_WAIT))
            pause = 2.0**attempt / 2
            try:
                response = self._client.request(method, f"{self.base_url}{path}", json=body)
            except httpx2.HTTPError as error:
                problem = excerpt_server_text(str(error), self._secret) or type(error).__name__
                continue
            if response.status_code != 429 and response.status_code < 500:
                return self._read(response)
            problem = f"HTTP {response.status_code} {excerpt_server_text(response.text, self._secret)}".strip()
            pause = parse_retry_after(dict(response.headers), time.time()) or pause
        raise UserError(
            f"{self.base_url}: does not take the scores ({problem}). Run the same export again when it is up: "
            "scores that arrived are not doubled."
        )

    def _read(self, response: httpx2.Response) -> dict[str, Any]:
        text = response.text[:_LARGEST_REPLY]
        excerpt = excerpt_server_text(text, self._secret)
        if response.status_code in (401, 403):
            raise SettingError(f"{self.base_url}: refuses the key (HTTP {response.status_code} {excerpt}).")
        if not response.is_success:
            raise StoreRefusal(response.status_code, excerpt)
        try:
            content = response.json()
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


def require_variable(environ: Mapping[str, str], name: str, purpose: str) -> str:
    """Return a variable of the environment; raise with its name where it is not set."""
    value = environ.get(name, "").strip()
    if not value:
        raise SettingError(f"{purpose}: no key. Set {name} in the environment or in .env.")
    return value


def deliver_rows(
    rows: Iterable[ScoredResponse], deliver: Callable[[ScoredResponse], Iterable[Delivery]]
) -> Iterator[Delivery]:
    """Yield the deliveries of each response, several responses at a time, in the order of the rows."""
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        results = pool.map(lambda row: list(deliver(row)), rows)
        try:
            for deliveries in results:
                yield from deliveries
        finally:
            # After an error, rows that have not begun are not sent.
            pool.shutdown(cancel_futures=True)
