"""Files and batches of the scripted model: many requests in one file, as providers offer them.

A batch is answered and billed when it is created; its progress is only shown later, one stage per request for its
status. No clock decides what a test sees, and the bill does not depend on anyone fetching the results.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import BodyPartReader, web

from eclose.errors import SettingError, UserError
from eclose_world.server import wire
from eclose_world.server.chat_requests import BadRequest, ChatRequest
from eclose_world.server.faults import ServerBehaviour, ServerFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eclose_world.server.bill import ServerBill
    from eclose_world.server.chat_requests import HandlerRegistry

BATCH_ENDPOINT = "/v1/chat/completions"
"""The only kind of request that a batch may contain."""
# The limits of OpenAI's batches, in requests and in bytes.
MAX_BATCH_REQUESTS = 50_000
MAX_BATCH_FILE_BYTES = 200 * 2**20
_PAGE, _LONGEST_PAGE = 20, 100
_STAGES = ("validating", "in_progress", "finalizing")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBehaviour:
    """Faults of batches; by default they complete at the second look, with all results in order."""

    looks: int = 2
    """Number of status requests until a batch is shown as finished."""
    stop_after: int | None = None
    """Number of requests that are answered; the others are listed as not executed."""
    stopped: Literal["expired", "cancelled"] = "expired"
    """Final status of a batch that was stopped."""
    shuffled: bool = False
    """Whether results come in another order than the requests."""
    missing: int = 0
    """Number of last results left out of the files, though they are billed."""
    repeated: int = 0
    """Number of first results that are written twice."""
    contradicted: int = 0
    """Number of first requests with a second result, that of the next request."""
    strangers: int = 0
    """Number of results that belong to no request."""
    torn: bool = False
    """Whether the last line of the results is cut off."""
    unheard: int = 0
    """Number of batches that are created while the connection closes before the reply."""
    late: int = 0
    """Number of lists from which a new batch is left out."""

    def __post_init__(self) -> None:
        amounts = ("looks", "missing", "repeated", "contradicted", "strangers", "unheard", "late")
        if wrong := [name for name in amounts if getattr(self, name) < 0]:
            raise SettingError(f"{', '.join(wrong)} must not be negative.")


@dataclass(slots=True)
class _Batch:
    """One batch: its input, and its final results."""

    id: str
    input_file_id: str
    window: str
    metadata: dict[str, str] | None
    end: str = "completed"
    problems: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"total": 0, "completed": 0, "failed": 0})
    output_file_id: str | None = None
    error_file_id: str | None = None
    looks: int = 0
    lists: int = 0

    def as_json(self, needed: int) -> dict[str, Any]:
        finished = self.looks >= needed
        status = self.end if finished else _STAGES[min(self.looks, len(_STAGES) - 1)]
        errors = {"object": "list", "data": self.problems} if finished and self.problems else None
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": BATCH_ENDPOINT,
            "errors": errors,
            "input_file_id": self.input_file_id,
            "completion_window": self.window,
            "status": status,
            "output_file_id": self.output_file_id if finished else None,
            "error_file_id": self.error_file_id if finished else None,
            "created_at": 0,
            "request_counts": self.counts if finished else self.counts | {"completed": 0, "failed": 0},
            "metadata": self.metadata,
        }


class BatchEndpoints:
    """Files and batches of one server, answered and billed as its chat requests are."""

    def __init__(
        self,
        registry: HandlerRegistry,
        behaviour: ServerBehaviour,
        bill: Callable[[], ServerBill],
        batches: BatchBehaviour,
    ) -> None:
        self._registry = registry
        self._behaviour = behaviour
        self._bill = bill
        self._faults = batches
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, _Batch] = {}

    def mount(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_post("/v1/files", self._upload)
        router.add_get("/v1/files/{id}/content", self._content)
        router.add_post("/v1/batches", self._create)
        router.add_get("/v1/batches", self._list)
        router.add_get("/v1/batches/{id}", self._retrieve)

    async def _upload(self, request: web.Request) -> web.Response:
        try:
            parts = {part.name or "": await _read(part) async for part in await request.multipart()}  # type: ignore[union-attr, arg-type]
        except (ValueError, AssertionError) as error:
            return _refuse(400, f"the body is not a form with a file: {error}")
        if parts.get("purpose") != b"batch" or "file" not in parts:
            return _refuse(400, "give a file with the purpose batch", param="purpose")
        name = self._store_file(parts["file"])
        description = {"id": name, "object": "file", "bytes": len(parts["file"]), "created_at": 0}
        return web.json_response(description | {"filename": "batch.jsonl", "purpose": "batch", "status": "processed"})

    def _store_file(self, data: bytes) -> str:
        name = f"file-{len(self._files) + 1:06}"
        self._files[name] = data
        return name

    async def _content(self, request: web.Request) -> web.Response:
        if (data := self._files.get(request.match_info["id"])) is None:
            return _refuse(404, "there is no such file")
        return web.Response(body=data, content_type="application/octet-stream")

    async def _create(self, request: web.Request) -> web.Response:
        try:
            fields = dict(json.loads(await request.read()))
            batch = self._create_batch(fields)
        except (ValueError, TypeError, UserError) as error:
            return _refuse(400, f"invalid batch: {error}")
        self._batches[batch.id] = batch
        self._run_batch(batch)
        # The batch exists and is billed although the client never hears of it.
        if len(self._batches) <= self._faults.unheard and request.transport is not None:
            request.transport.close()
        return web.json_response(batch.as_json(self._faults.looks))

    def _create_batch(self, fields: dict[str, Any]) -> _Batch:
        if fields.get("endpoint") != BATCH_ENDPOINT or fields.get("completion_window") != "24h":
            raise BadRequest(f"endpoint must be {BATCH_ENDPOINT}, completion_window 24h.")
        if (name := fields.get("input_file_id")) not in self._files:
            raise BadRequest("input_file_id names no file.", param="input_file_id")
        return _Batch(f"batch_{len(self._batches) + 1:06}", name, "24h", fields.get("metadata"))

    async def _list(self, request: web.Request) -> web.Response:
        limit = int(request.query.get("limit", _PAGE))
        if not 1 <= limit <= _LONGEST_PAGE:
            return _refuse(400, f"limit must be 1 to {_LONGEST_PAGE}", param="limit")
        after = request.query.get("after")
        # Newest first, as at the provider: a recent batch is on the first page.
        newest = [batch for batch in reversed(self._batches.values()) if after or self._is_listed(batch)]
        ids = [batch.id for batch in newest]
        remaining = newest[ids.index(after) + 1 :] if after in ids else newest
        page = [batch.as_json(self._faults.looks) for batch in remaining[:limit]]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return web.json_response({"object": "list", "data": page, "has_more": len(remaining) > limit} | ends)

    def _is_listed(self, batch: _Batch) -> bool:
        batch.lists += 1
        return batch.lists > self._faults.late

    async def _retrieve(self, request: web.Request) -> web.Response:
        if (batch := self._batches.get(request.match_info["id"])) is None:
            return _refuse(404, "there is no such batch")
        batch.looks += 1
        return web.json_response(batch.as_json(self._faults.looks))

    def _run_batch(self, batch: _Batch) -> None:
        """Check the file, answer its requests, and write the results to two files."""
        requests, batch.problems = _parse_batch_file(self._files[batch.input_file_id])
        if batch.problems:
            batch.end = "failed"
            return
        limit = self._faults.stop_after
        if limit is not None and len(requests) > limit:
            batch.end = self._faults.stopped
        # All results exist from now on; looks only decide when they are shown.
        results = [_result(batch, line, *self._answer(line["body"])) for line in requests[:limit]]
        unanswered = [] if limit is None else [self._unexecuted_result(batch, line) for line in requests[limit:]]
        good = [result for result in results if result["response"]["status_code"] == 200]
        bad = [result for result in results if result["response"]["status_code"] != 200] + unanswered
        batch.counts = {"total": len(requests), "completed": len(good), "failed": len(bad)}
        batch.output_file_id = self._write_results(self._distort_results(batch, good), torn=self._faults.torn)
        batch.error_file_id = self._write_results(self._order_results(batch, bad))

    def _unexecuted_result(self, batch: _Batch, line: dict[str, Any]) -> dict[str, Any]:
        message = f"This request could not be executed before the batch {self._faults.stopped}."
        error = {"code": f"batch_{self._faults.stopped}", "message": message}
        return {"id": f"{batch.id}/-", "custom_id": line["custom_id"], "response": None, "error": error}

    def _answer(self, body: object) -> tuple[int, bytes]:
        """Return status and body of one request, billed like a single request."""
        bill = self._bill()
        try:
            chat_request = ChatRequest.of(body)
            handler = self._registry.handler(chat_request.schema_name)
        except BadRequest as problem:
            bill.rejected += 1
            return 400, _problem_body(problem)
        line = bill.get_line(chat_request.key)
        line.receive(time.monotonic())
        fault = self._behaviour.draw_fault(chat_request.key, line.attempts)
        if fault is not None:
            line.faulted[fault] += 1
            if not fault.paid:
                return (429 if fault is ServerFault.RATE_LIMIT else 500), wire.encode_error_body(
                    str(fault), kind="server_error"
                )
        try:
            reply = self._behaviour.flip_labels(handler(chat_request), chat_request.key)
            reply = (
                reply if fault is None else self._behaviour.break_content(reply, fault, chat_request.key, line.attempts)
            )
            encoded = wire.encode_completion(chat_request, reply)
        except BadRequest as problem:
            line.errors += 1
            return 400, _problem_body(problem)
        line.pay(encoded.prompt_tokens, encoded.completion_tokens)
        return 200, encoded.data

    def _distort_results(self, batch: _Batch, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        faults = self._faults
        handed_out = results[: len(results) - faults.missing] if faults.missing else list(results)
        handed_out += results[: faults.repeated]
        # Each of the first requests also gets the result of its successor.
        pairs = islice(pairwise(results), faults.contradicted)
        handed_out += [{**other, "custom_id": result["custom_id"]} for result, other in pairs]
        handed_out += [
            {**result, "custom_id": f"{number:064x}"} for number, result in enumerate(results[: faults.strangers])
        ]
        return self._order_results(batch, handed_out)

    def _order_results(self, batch: _Batch, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._faults.shuffled:
            Random(f"{self._behaviour.seed}/{batch.id}").shuffle(results)
        return results

    def _write_results(self, results: Iterable[dict[str, Any]], *, torn: bool = False) -> str | None:
        """Store a file of results; as at the provider, there is no file without results."""
        data = b"".join(json.dumps(result).encode("ascii") + b"\n" for result in results)
        return self._store_file(data[: -len(data.splitlines()[-1]) // 2] if torn and data else data) if data else None


async def _read(part: BodyPartReader) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(2**16):
        data += chunk
        if len(data) > MAX_BATCH_FILE_BYTES:
            raise ValueError(f"the file is longer than {MAX_BATCH_FILE_BYTES:,} bytes")
    return bytes(data)


def _parse_batch_file(data: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the requests of a file and its problems: a provider refuses the whole file for one bad line."""
    requests, problems = [], []
    custom_ids: set[str] = set()
    for number, raw in enumerate(data.splitlines(), 1):
        line, code = _parse_line(raw, custom_ids)
        if code is not None:
            problems.append({"code": code, "line": number, "message": f"line {number}: {code}", "param": None})
        else:
            requests.append(line)
    if not requests and not problems:
        problems.append({"code": "empty_file", "line": None, "message": "the file is empty", "param": None})
    # The provider's limits.
    if len(requests) > MAX_BATCH_REQUESTS:
        problems.append({"code": "too_many_tasks", "line": None, "message": "too many requests", "param": None})
    return requests, problems


def _parse_line(raw: bytes, custom_ids: set[str]) -> tuple[dict[str, Any], str | None]:
    try:
        line = json.loads(raw)
        custom_id, method_and_url = line["custom_id"], (line["method"], line["url"])
        # Only its presence is checked here.
        _ = line["body"]
    except (ValueError, KeyError, TypeError):
        return {}, "invalid_json_line"
    if method_and_url != ("POST", BATCH_ENDPOINT):
        return line, "mismatched_endpoint"
    if not isinstance(custom_id, str) or custom_id in custom_ids:
        return line, "duplicate_custom_id"
    custom_ids.add(custom_id)
    return line, None


def _result(batch: _Batch, line: dict[str, Any], status: int, body: bytes) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "", "body": json.loads(body)}
    return {"id": f"{batch.id}/req", "custom_id": line["custom_id"], "response": response, "error": None}


def _problem_body(problem: BadRequest) -> bytes:
    return wire.encode_error_body(str(problem), kind="invalid_request_error", code=problem.code, param=problem.param)


def _refuse(status: int, message: str, param: str | None = None) -> web.Response:
    body = wire.encode_error_body(message, kind="invalid_request_error", param=param)
    return web.Response(status=status, body=body, content_type="application/json")
