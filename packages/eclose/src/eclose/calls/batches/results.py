"""Put the results of a batch into the ledger: joined by custom id alone, parsed like replies to single calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import SecretStr

from eclose.calls.batches.files import BatchShardNote, format_custom_id, parse_custom_id
from eclose.calls.batches.provider import ProviderBatch
from eclose.calls.budget import compute_known_cost
from eclose.calls.http.failures import CallFailure, HttpResponse, excerpt_server_text
from eclose.calls.http.parse_reply import parse_http_reply
from eclose.calls.http.providers import RequestDialect, read_messages
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, ReplySchema, Request, TokenUsage
from eclose.calls.paid_once import encode_stored_answer
from eclose.calls.prices import ModelPrice
from eclose.calls.tokens import bound_request_usage
from eclose.errors import RecordError
from eclose.files.json_reader import JsonObject, parse_json_object
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path


T = TypeVar("T")

_JSON = {"content-type": "application/json"}
_CHUNK_SIZE = 256
"""Ledger entries that are written concurrently and share a commit."""


def chunk_for_ledger(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of the size that is written to the ledger together."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK_SIZE)):
        yield chunk


@dataclass(frozen=True, slots=True)
class UnansweredRequest:
    """A request without a reply."""

    key: str
    reason: str
    """Reason in one word, for counting."""
    problem: str = ""


@dataclass(slots=True)
class CollectedBatches:
    """Requests in batches by state: answered, unanswered or in progress, each counted once."""

    answered: int = 0
    """Requests whose reply is in the ledger."""
    unanswered: list[UnansweredRequest] = field(default_factory=list)
    under_way: int = 0
    strays: Counter[str] = field(default_factory=Counter)
    """Result lines that were not used, by reason."""
    cost: int = 0
    """Cost in millionths."""


@dataclass(slots=True, kw_only=True)
class BatchLedgerWriter:
    """Writes the results of one finished batch to the ledger."""

    note: BatchShardNote
    batch: ProviderBatch
    ledger: Ledger
    price: ModelPrice | None
    secret: SecretStr | None
    dialect: RequestDialect
    """Variant of the request body to use from now on: a refused variant is replaced by the next."""

    async def run(self, requests: Path, files: Sequence[Path], collected: CollectedBatches) -> None:
        """Write all replies to the ledger, and count every request of the batch once."""
        results = BatchResults(files, self.note.records)
        with requests.open("rb") as file:
            lines = (parse_json_object(line) for line in file)
            expected = {line["custom_id"]: _expect_reply(line["body"]) for line in lines}
        # An interrupted collection, or a single call to the same model, may have stored replies already. These are
        # counted as answered and skipped, so that a repeated collection settles nothing twice.
        open_names = set()
        for names in chunk_for_ledger(self.note.records):
            replies = await asyncio.gather(*(self.ledger.find_reply(parse_custom_id(name)) for name in names))
            open_names |= {name for name, settled in zip(names, replies, strict=True) if settled is None}
        collected.answered += len(self.note.records) - len(open_names)
        unanswered: list[UnansweredRequest] = []
        for chunk in chunk_for_ledger(result for result in results if result.custom_id in open_names):
            settling = (self._settle(result, expected[result.custom_id], collected) for result in chunk)
            unanswered += [request for request in await asyncio.gather(*settling) if request is not None]
            open_names.difference_update(result.custom_id for result in chunk)
        # Whatever is open now has no result in any file.
        for names in chunk_for_ledger(name for name in self.note.records if name in open_names):
            unanswered += await asyncio.gather(*(self._explain_missing(name, results) for name in names))
        self.note.unanswered = {format_custom_id(request.key): request.reason for request in unanswered}
        collected.unanswered += unanswered
        collected.strays += results.strays

    async def _settle(
        self, result: BatchRequestResult, expected: tuple[Request, bool, TokenUsage], collected: CollectedBatches
    ) -> UnansweredRequest | None:
        """Write the answer of a result to the ledger; return the reason where the result holds no answer."""
        key = parse_custom_id(result.custom_id)
        # Not executed (expired or cancelled), so not billed. The batch may have been submitted by another process.
        if result.status is None:
            await self.ledger.release(key, any_writer=True)
            return UnansweredRequest(key, result.error, result.problem)
        request, by_tool, worst = expected
        response = HttpResponse(result.status, _JSON, result.body)
        answer = parse_http_reply(response, request, by_tool=by_tool, key=self.secret)
        if isinstance(answer, CallFailure) and not answer.kind.semantic:
            if (learned := self.dialect.after(answer)) is not None:
                learned.warn_of_omission(self.dialect, self.note.model)
                self.dialect = learned
            # Otherwise the request may have been billed, and its reservation stays in the account.
            if answer.unpaid:
                await self.ledger.release(key, any_writer=True)
            return UnansweredRequest(key, str(answer.kind), str(answer))
        if (cost := compute_known_cost(answer, self.price)) is None:
            assert self.price is not None
            cost = self.price.cost(worst)
        try:
            await self.ledger.settle(encode_stored_answer(key, answer, cost=cost))
        except RecordError:
            # Another worker sent the same request online and was first: its answer is used.
            if await self.ledger.find_reply(key) is None:
                raise
        collected.answered += 1
        collected.cost += cost
        return None

    async def _explain_missing(self, name: str, results: BatchResults) -> UnansweredRequest:
        """Return why a request has no usable result; release its reservation where it was certainly not billed."""
        key = parse_custom_id(name)
        if name in results.contradicted:
            return UnansweredRequest(key, "contradicted", "there are several different results.")
        if self.batch.status == "failed":  # the provider rejected the whole batch, and bills nothing
            await self.ledger.release(key, any_writer=True)
            return UnansweredRequest(key, "failed", self.batch.problem)
        return UnansweredRequest(key, "missing", f"batch {self.batch.id} has no result for it.")


def _expect_reply(body: JsonObject) -> tuple[Request, bool, TokenUsage]:
    """Return how to parse a reply: the request without its messages, whether it asks for a tool, its worst case."""
    max_tokens = body.get("max_tokens") or body["max_completion_tokens"]
    decoding = Decoding(max_tokens=max_tokens, top_logprobs=body.get("top_logprobs"))
    # The dialect that sent the request asked for the schema as a tool call or as a response format; the reply has that
    # form.
    by_tool = "tools" in body
    schema = None
    if by_tool:
        function = body["tools"][0]["function"]
        schema = ReplySchema(function["name"], function["parameters"])
    elif "response_format" in body:
        json_schema = body["response_format"]["json_schema"]
        schema = ReplySchema(json_schema["name"], json_schema["schema"])
    request = Request(read_messages(body), decoding, schema)
    # The messages are dropped: a shard has up to 50,000 requests, and parsing does not need them.
    return replace(request, messages=()), by_tool, bound_request_usage(request)


@dataclass(frozen=True, slots=True)
class BatchRequestResult:
    """The result of one request."""

    custom_id: str
    status: int | None
    """HTTP status of the response; None where the request was not executed."""
    body: bytes
    error: str = ""
    """Reason in one word where the request was not executed."""
    problem: str = ""


class BatchResults:
    """The results of a batch, joined to its requests by custom id alone.

    Results without a request are counted. Where two results of a request differ, neither is used, because the right
    one is unknown.
    """

    def __init__(self, paths: Sequence[Path], names: Container[str]) -> None:
        self.strays: Counter[str] = Counter()
        self.contradicted: set[str] = set()
        self._paths = paths
        # Hashes and not the results: the files have up to 4 GB and are read twice instead of being kept in memory.
        self._digests: dict[str, str] = {}
        for line in self._lines():
            name = None if line is None else line.get("custom_id")
            if line is None or not isinstance(name, str):
                self.strays["unreadable"] += 1
            elif name not in names:
                self.strays["unknown"] += 1
            else:
                self._compare(name, _digest(line))

    def _compare(self, name: str, digest: str) -> None:
        earlier = self._digests.get(name)
        if earlier is None:
            self._digests[name] = digest
        elif earlier == digest:
            self.strays["repeated"] += 1
        else:
            self.strays["contradicted"] += 1
            self.contradicted.add(name)

    def _lines(self) -> Iterator[JsonObject | None]:
        for path in self._paths:
            with path.open("rb") as file:
                for raw in file:
                    try:
                        yield parse_json_object(raw)
                    except RecordError:
                        yield None

    def __iter__(self) -> Iterator[BatchRequestResult]:
        remaining = set(self._digests) - self.contradicted
        for line in self._lines():
            name = None if line is None else line.get("custom_id")
            if line is not None and isinstance(name, str) and name in remaining:
                remaining.discard(name)
                yield _parse_result(name, line)


def _digest(line: JsonObject) -> str:
    result = _parse_result("", line)
    return content_hash([result.status, result.body.decode("ascii"), result.error])


def _parse_result(name: str, line: JsonObject) -> BatchRequestResult:
    response, error = _object(line.get("response")), _object(line.get("error"))
    body = json.dumps(response.get("body"), sort_keys=True).encode("ascii")
    if type(status := response.get("status_code")) is int:
        return BatchRequestResult(name, status, body)
    # ``batch_expired`` and ``expired`` are the same reason for the counts.
    code = excerpt_server_text(str(error.get("code") or "not_executed")).removeprefix("batch_")
    return BatchRequestResult(name, None, body, code, excerpt_server_text(str(error.get("message") or "")))


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
