"""Files and batches of a provider over HTTP.

Every request that is safe to repeat is retried. Creating a batch is not, because a second batch would be paid again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import aiohttp

from eclose.calls.batches.files import CHAT_COMPLETIONS_PATH
from eclose.calls.http.client import HTTP_ERRORS
from eclose.calls.http.failures import (
    CallFailure,
    CallFailureKind,
    HttpResponse,
    classify_http_exception,
    classify_http_status,
    excerpt_server_text,
)
from eclose.calls.retry import ServiceDown
from eclose.errors import RecordError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import JsonObject, parse_json_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from eclose.calls.http.endpoint import ModelRoute

T = TypeVar("T")

SHARD_TAG = "eclose_shard"
"""Metadata field of a batch with the name of its shard."""
# Final statuses of the OpenAI batch API.
_FINAL_STATUSES = frozenset({"completed", "expired", "cancelled", "failed"})
_PAGE = 100
_WINDOW = "24h"
_LONGEST_PAUSE = 900.0
"""Seconds; a longer ``Retry-After`` stops the run."""
_RETRYABLE = frozenset(
    {CallFailureKind.CONNECTION, CallFailureKind.TIMEOUT, CallFailureKind.TRANSIENT, CallFailureKind.RATE_LIMIT}
)
# A rate limit is answered before the request is executed, so repeating it cannot create a second batch.
_NOT_EXECUTED = frozenset({CallFailureKind.RATE_LIMIT})


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """A batch in the provider's list."""

    id: str
    status: str
    shard: str | None
    """Name of its shard from the metadata; None for batches of other programs."""
    input_file_id: str | None
    files: tuple[tuple[str, str], ...]
    """Kind (output, error) and id of each result file."""
    problem: str
    """Errors of the batch as a whole; empty for none."""

    @property
    def finished(self) -> bool:
        """Whether the status is final. An unknown status counts as in progress."""
        return self.status in _FINAL_STATUSES


class BatchProvider:
    """Client for the files and batches of one route."""

    def __init__(self, route: ModelRoute, *, deadline: float, attempts: int, first_wait: float, largest: int) -> None:
        self._deadline = deadline
        self._attempts = attempts
        self._first_wait = first_wait
        self._client = route.open_client(largest)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def upload(self, path: Path) -> str:
        """Upload a file and return its id. Repeating an upload costs nothing."""

        async def send() -> str:
            form = aiohttp.FormData({"purpose": "batch"})
            with path.open("rb") as file:
                form.add_field("file", file, filename=path.name, content_type="application/octet-stream")
                return _parse_id(await self._request("POST", "/files", form=form))

        return await self._send(f"cannot upload {path.name}", send)

    async def create(self, file_id: str, shard: str) -> ProviderBatch:
        """Create a batch. Retried only after a rate limit: after any other failure the batch may exist already."""
        body = {
            "input_file_id": file_id,
            "endpoint": CHAT_COMPLETIONS_PATH,
            "completion_window": _WINDOW,
            "metadata": {SHARD_TAG: shard},
        }

        async def send() -> ProviderBatch:
            return _parse_batch(await self._request("POST", "/batches", body))

        return await self._send("cannot create a batch", send, retryable=_NOT_EXECUTED)

    async def retrieve(self, batch_id: str) -> ProviderBatch:
        """Return a batch with its current status."""

        async def send() -> ProviderBatch:
            return _parse_batch(await self._request("GET", f"/batches/{quote(batch_id, safe='')}"))

        return await self._send(f"cannot read the status of batch {batch_id}", send)

    async def list_batches(self) -> list[ProviderBatch]:
        """Return all batches of the account, latest first."""

        async def send() -> list[ProviderBatch]:
            batches: list[ProviderBatch] = []
            after: tuple[tuple[str, str], ...] = ()
            while True:
                page = await self._request("GET", "/batches", query=(("limit", str(_PAGE)), *after))
                # A malformed answer must not count as an empty list: unlisted batches are created and paid again.
                if not isinstance(page.get("data"), list):
                    raise _MalformedAnswerError("the server's answer is not a list.")
                batches += [_parse_batch(batch) for batch in page["data"]]
                if not page.get("has_more") or not page["data"]:
                    return batches
                after = (("after", batches[-1].id),)

        return await self._send("cannot list the batches", send)

    async def download(self, file_id: str, path: Path) -> bool:
        """Download a file; return False where the provider no longer has it."""

        async def send() -> None:
            async with self._client.stream("GET", f"/files/{quote(file_id, safe='')}/content") as response:
                if response.status != 200:
                    raise _RefusedError(await response.read())
                # A proxy may answer 200 with a login or error page, which would be stored as the results of a paid
                # batch.
                if response.headers.get("content-type", "").startswith("text/html"):
                    raise _MalformedAnswerError("the server sent an HTML page, not a file.")
                with AtomicFile(path) as file:
                    async for piece in response.pieces:
                        file.write(piece)

        try:
            await self._send(f"cannot download {file_id}", send)
        except _NotFoundError:
            return False
        return True

    async def _request(self, method: str, path: str, body: object = None, **details: Any) -> JsonObject:
        response = await self._client.send(method, path, body, **details)
        if not 200 <= response.status < 300:
            raise _RefusedError(response)
        return parse_json_object(response.body)

    async def _send(
        self, problem: str, send: Callable[[], Awaitable[T]], retryable: frozenset[CallFailureKind] = _RETRYABLE
    ) -> T:
        """Return the result of a request; retry failures of the kinds in ``retryable``."""
        attempt = 0
        while isinstance(outcome := await self._try(send), CallFailure):
            wait = self._first_wait * 2**attempt if outcome.retry_after is None else outcome.retry_after
            attempt += 1
            # Raised as ``ServiceDown`` and not as a failure of a record: no single record is at fault, and the command
            # can be repeated.
            if outcome.kind not in retryable or attempt == self._attempts or wait > _LONGEST_PAUSE:
                error = _NotFoundError if outcome.status == 404 else ServiceDown
                raise error(f"{problem} ({outcome}). Finished work is kept: run the same command again to continue.")
            await asyncio.sleep(wait)
        return outcome

    async def _try(self, send: Callable[[], Awaitable[T]]) -> T | CallFailure:
        try:
            async with asyncio.timeout(self._deadline):
                return await send()
        except _RefusedError as refusal:
            failure = classify_http_status(refusal.response, time.time(), self._client.secrets)
        except (*HTTP_ERRORS, RecordError) as error:
            failure = classify_http_exception(error, self._client.secrets)
        except TimeoutError:
            failure = CallFailure(CallFailureKind.TIMEOUT, f"no complete reply within {self._deadline:g} s.")
        return failure


class _RefusedError(Exception):
    """A response with a status other than 2xx."""

    def __init__(self, response: HttpResponse) -> None:
        self.response = response
        super().__init__()


class _NotFoundError(ServiceDown):
    """The provider has no such file or batch."""


class _MalformedAnswerError(RecordError):
    """An answer of the provider in an unexpected form."""


def _parse_id(fields: Any) -> str:
    identifier = fields.get("id") if isinstance(fields, dict) else None
    if not isinstance(identifier, str) or not identifier:
        raise _MalformedAnswerError("the server's answer has no id.")
    return identifier


def _parse_batch(fields: Any) -> ProviderBatch:
    """Parse a batch object; providers leave out different fields."""
    name, metadata = _parse_id(fields), fields.get("metadata")
    shard = metadata.get(SHARD_TAG) if isinstance(metadata, dict) else None
    # Some providers write an empty string where there is no file.
    files = tuple((kind, str(file_id)) for kind in ("output", "error") if (file_id := fields.get(f"{kind}_file_id")))
    errors = fields.get("errors")
    error_list = errors.get("data") if isinstance(errors, dict) else None
    problems = [error for error in error_list or () if isinstance(error, dict)]
    problem = "; ".join(f"{error.get('code')}: {error.get('message')}" for error in problems[:3])
    return ProviderBatch(
        id=name,
        status=str(fields.get("status")),
        shard=shard,
        input_file_id=fields.get("input_file_id"),
        files=files,
        problem=excerpt_server_text(problem),
    )
