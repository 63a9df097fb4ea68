"""A provider's files and batches over HTTP, by the stock client: what is there, and what goes wrong on the way.

Everything that can be repeated without harm is; making a batch cannot be, since it would be paid twice.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import aiohttp
import httpx2
import openai

from eclose.calls.batch.files import URL
from eclose.calls.retry import ServiceDown
from eclose.errors import RecordError
from eclose.models.interface import Request
from eclose.models.openai.endpoint import EndpointSettings, Route, build_client
from eclose.models.openai.failures import CallFailure, FailureKind, HttpResponse, UnreadableBody, excerpt
from eclose.models.openai.parse_reply import parse_reply
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.strict_json import JsonObject, parse_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")

TAG = "eclose_shard"
"""Where a batch carries the name of its shard."""
DONE = frozenset({"completed", "expired", "cancelled", "failed"})
_PAGE = 100
_WINDOW = "24h"
_LONGEST_PAUSE = 900.0
"""Seconds; a server that wants us back later stops the run."""
_PASSING = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.TRANSIENT, FailureKind.RATE_LIMIT})
_TURNED_AWAY = frozenset({FailureKind.RATE_LIMIT})
_NOTHING = Request(())


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """A batch as its provider shows it."""

    id: str
    status: str
    shard: str | None
    """What its maker wrote on it; None for somebody else's."""
    input_file_id: str | None
    files: tuple[tuple[str, str], ...]
    """Kind (output, error) and id of its result files, as far as there are any."""
    problem: str
    """What was wrong with the whole of it."""

    @property
    def done(self) -> bool:
        """Whether nothing more will come. A state nobody knows counts as on the way."""
        return self.status in DONE


class BatchProvider:
    """The files and batches behind one route."""

    def __init__(self, route: Route, *, deadline: float, attempts: int, first_wait: float, largest: int) -> None:
        self._route = route
        self._deadline = deadline
        self._attempts = attempts
        self._first_wait = first_wait
        self._client = build_client(route, EndpointSettings(deadline=deadline, connections=4, largest_reply=largest))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def upload(self, path: Path) -> str:
        """The id of a copy of the file there. A copy too many costs nothing."""

        async def send() -> str:
            with path.open("rb") as file:
                told = await self._client.post(
                    "/files",
                    cast_to=httpx2.Response,
                    body={"purpose": "batch"},
                    files=[("file", (path.name, file))],
                    options={"headers": {"Content-Type": "multipart/form-data"}},
                )
            return _identity(parse_object(told.content))

        return await self._reach(f"cannot upload {path.name}", send)

    async def create(self, file_id: str, shard: str) -> ProviderBatch:
        """Make a batch. Sent again only where it was turned away: after anything else there may be one already."""

        body = {"input_file_id": file_id, "endpoint": URL, "completion_window": _WINDOW, "metadata": {TAG: shard}}

        async def send() -> ProviderBatch:
            told = await self._client.post("/batches", cast_to=httpx2.Response, body=body)
            return _batch(parse_object(told.content))

        return await self._reach("cannot make a batch", send, again=_TURNED_AWAY)

    async def retrieve(self, batch_id: str) -> ProviderBatch:
        """How far a batch is."""

        async def send() -> ProviderBatch:
            return _batch(await self._get(f"/batches/{quote(batch_id, safe='')}"))

        return await self._reach(f"cannot look at batch {batch_id}", send)

    async def all(self) -> list[ProviderBatch]:
        """Every batch of the account, the latest first."""

        async def send() -> list[ProviderBatch]:
            listed: list[ProviderBatch] = []
            after: dict[str, str | int] = {}
            while True:
                page = await self._get("/batches", {"limit": _PAGE, **after})
                # An answer that is no list must not pass for an empty one: what is not listed is made, and paid, anew.
                if not isinstance(page.get("data"), list):
                    raise _StrangeError("the server's answer is no list.")
                listed += [_batch(batch) for batch in page["data"]]
                if not page.get("has_more") or not page["data"]:
                    return listed
                after = {"after": listed[-1].id}

        return await self._reach("cannot list the batches", send)

    async def download(self, file_id: str, path: Path) -> bool:
        """Fetch a file as it is; False where it is there no more."""

        async def send() -> None:
            async with self._client.files.with_streaming_response.content(file_id) as response:
                if response.headers.get("content-type", "").startswith("text/html"):
                    raise _StrangeError("the server sent a page, not a file.")
                await _save(response.iter_bytes(), path)

        try:
            await self._reach(f"cannot fetch {file_id}", send)
        except _GoneError:
            return False
        return True

    async def _get(self, path: str, query: dict[str, str | int] | None = None) -> JsonObject:
        told = await self._client.get(path, cast_to=httpx2.Response, options={"params": query or {}})
        return parse_object(told.content)

    async def _reach(
        self, problem: str, send: Callable[[], Awaitable[T]], again: frozenset[FailureKind] = _PASSING
    ) -> T:
        """What a request gives, tried again while that is harmless and may help."""
        attempt = 0
        while isinstance(outcome := await self._try(send), CallFailure):
            wait = self._first_wait * 2**attempt if outcome.retry_after is None else outcome.retry_after
            attempt += 1
            if outcome.kind not in again or attempt == self._attempts or wait > _LONGEST_PAUSE:
                error = _GoneError if outcome.status == 404 else ServiceDown
                raise error(f"{problem} ({outcome}). What is done is kept: run the same command again to go on.")
            await asyncio.sleep(wait)
        return outcome

    async def _try(self, send: Callable[[], Awaitable[T]]) -> T | CallFailure:
        outcome: HttpResponse | Exception
        try:
            async with asyncio.timeout(self._deadline):
                return await send()
        except TimeoutError:
            return CallFailure(FailureKind.TIMEOUT, f"no whole reply within {self._deadline:g} s.")
        except openai.APIStatusError as error:
            told = error.response
            outcome = HttpResponse(told.status_code, dict(told.headers), told.content)
        except (openai.OpenAIError, httpx2.HTTPError, aiohttp.ClientError, UnreadableBody, RecordError) as error:
            outcome = error
        failure = parse_reply(outcome, _NOTHING, now=time.time(), key=self._route.key)
        assert isinstance(failure, CallFailure)
        return failure


class _GoneError(ServiceDown):
    """What was asked for is not there."""


class _StrangeError(RecordError):
    """An answer that is none."""


async def _save(chunks: AsyncIterator[bytes], path: Path) -> None:
    with AtomicFile(path) as file:
        async for chunk in chunks:
            file.write(chunk)


def _identity(told: Any) -> str:
    found = told.get("id") if isinstance(told, dict) else None
    if not isinstance(found, str) or not found:
        raise _StrangeError("the server's answer has no id.")
    return found


def _batch(told: Any) -> ProviderBatch:
    """What a provider says of a batch. Not all of them say everything."""
    name, metadata = _identity(told), told.get("metadata")
    shard = metadata.get(TAG) if isinstance(metadata, dict) else None
    # Some write an empty text where there is no file.
    files = tuple((kind, str(found)) for kind in ("output", "error") if (found := told.get(f"{kind}_file_id")))
    errors = told.get("errors")
    listed = errors.get("data") if isinstance(errors, dict) else None
    problems = [error for error in listed or () if isinstance(error, dict)]
    problem = "; ".join(f"{error.get('code')}: {error.get('message')}" for error in problems[:3])
    return ProviderBatch(name, str(told.get("status")), shard, told.get("input_file_id"), files, excerpt(problem))
