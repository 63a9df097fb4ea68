"""The results of a batch on their way into the ledger: found by custom id alone, read like replies to single calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from eclose.calls.batch.files import ShardNote, format_custom_id, parse_custom_id
from eclose.calls.budget import compute_known_cost
from eclose.calls.cache import encode_answer
from eclose.core.identity import content_hash
from eclose.errors import RecordError
from eclose.models.interface import Decoding, Reply, ReplySchema, Request, Usage
from eclose.models.openai.failures import CallFailure, HttpResponse, excerpt
from eclose.models.openai.parse_reply import parse_reply
from eclose.models.token_counts import bound_usage
from eclose.store.records.strict_json import JsonObject, parse_object

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from pydantic import SecretStr

    from eclose.calls.batch.provider import ProviderBatch
    from eclose.calls.prices import Price
    from eclose.models.openai.dialect import Dialect
    from eclose.store.ledger.ledger import Ledger

T = TypeVar("T")

_JSON = {"content-type": "application/json"}
_TOGETHER = 256
"""Entries of the ledger under way at once: they share a commit."""


def chunked(items: Iterable[T]) -> Iterator[list[T]]:
    """The items, as many at a time as go into the ledger together."""
    rest = iter(items)
    while some := list(islice(rest, _TOGETHER)):
        yield some


@dataclass(frozen=True, slots=True)
class UnansweredRequest:
    """A request without a reply."""

    key: str
    record_ids: tuple[str, ...]
    """The records that wait for it."""
    reason: str
    """One word, to be counted by."""
    problem: str = ""


@dataclass(slots=True)
class CollectedBatches:
    """What came of the requests in batches: answered, unanswered or under way, each counted once."""

    answered: int = 0
    """The ledger has the reply."""
    bad: Counter[str] = field(default_factory=Counter)
    """Of these, what cannot be used (refused, cut off, of the wrong shape), by kind. It is paid, and kept."""
    unanswered: list[UnansweredRequest] = field(default_factory=list)
    under_way: int = 0
    strays: Counter[str] = field(default_factory=Counter)
    """Lines of results that were not used, by reason."""
    cost: int = 0
    """Millionths."""
    reserved: int = 0
    """What had been set aside for the batches that are done."""


def build_unanswered(note: ShardNote, name: str, reason: str, problem: str = "") -> UnansweredRequest:
    """A request of a shard that has no reply."""
    return UnansweredRequest(parse_custom_id(name), tuple(note.records[name]), reason, problem)


class BatchSettlement:
    """One batch that is done, on its way into the ledger."""

    def __init__(
        self,
        note: ShardNote,
        batch: ProviderBatch,
        ledger: Ledger,
        price: Price | None,
        secret: SecretStr | None,
        dialect: Dialect,
    ) -> None:
        self.dialect = dialect
        """The form to ask in from now on: a request that was refused for its form teaches another."""
        self._note = note
        self._batch = batch
        self._ledger = ledger
        self._price = price
        self._secret = secret

    async def run(self, requests: Path, files: Sequence[Path], collected: CollectedBatches) -> None:
        """Put all replies into the ledger, and count every request of the batch once."""
        results, how = BatchResults(files, self._note.records), read_expected_replies(requests)
        left = await self._without_reply()
        collected.answered += len(self._note.records) - len(left)
        listed: list[UnansweredRequest] = []
        for some in chunked(result for result in results if result.custom_id in left):
            taken = (self._take(result, how[result.custom_id], collected) for result in some)
            listed += [one for one in await asyncio.gather(*taken) if one is not None]
            left.difference_update(result.custom_id for result in some)
        for some_names in chunked(name for name in self._note.records if name in left):
            listed += await asyncio.gather(*(self._without_result(name, results) for name in some_names))
        self._note.unanswered = {format_custom_id(one.key): one.reason for one in listed}
        collected.unanswered += listed
        collected.strays += results.strays
        collected.reserved += self._note.reserved

    async def _without_reply(self) -> set[str]:
        """The requests that nobody answered meanwhile: not an earlier collection that broke off, not a call online."""
        left = set()
        for names in chunked(self._note.records):
            found = await asyncio.gather(*(self._ledger.find(parse_custom_id(name)) for name in names))
            left |= {name for name, settled in zip(names, found, strict=True) if settled is None}
        return left

    async def _take(
        self, result: BatchResult, how: ExpectedReply, collected: CollectedBatches
    ) -> UnansweredRequest | None:
        """Keep what a result says; where it is no answer, say why."""
        key = parse_custom_id(result.custom_id)
        if result.status is None:
            await self._ledger.release(key, whoever=True)
            return build_unanswered(self._note, result.custom_id, result.error, result.problem)
        answer = how.read(result, self._secret)
        if isinstance(answer, CallFailure) and not answer.kind.semantic:
            self.dialect = self.dialect.after(answer) or self.dialect
            if answer.unpaid:
                await self._ledger.release(key, whoever=True)
            return build_unanswered(self._note, result.custom_id, str(answer.kind), str(answer))
        if (cost := compute_known_cost(answer, self._price)) is None:
            assert self._price is not None
            cost = self._price.cost(how.worst)
        try:
            await self._ledger.settle(encode_answer(key, answer, cost=cost))
        except RecordError:
            # Another worker asked the same online and was first: that answer is the one.
            if await self._ledger.find(key) is None:
                raise
        collected.answered += 1
        collected.cost += cost
        if isinstance(answer, CallFailure):
            collected.bad[str(answer.kind)] += 1
        return None

    async def _without_result(self, name: str, results: BatchResults) -> UnansweredRequest:
        """Why a request has no result. Only of a batch that was refused as a whole is it certain that it was free."""
        if name in results.contradicted:
            return build_unanswered(self._note, name, "contradicted", "there are several results, and they differ.")
        if self._batch.status == "failed":
            await self._ledger.release(parse_custom_id(name), whoever=True)
            return build_unanswered(self._note, name, "failed", self._batch.problem)
        return build_unanswered(self._note, name, "missing", f"batch {self._batch.id} has no result for it.")


@dataclass(frozen=True, slots=True)
class ExpectedReply:
    """How the reply to a request is read; what was asked does not matter any more."""

    request: Request
    by_tool: bool
    worst: Usage

    def read(self, result: BatchResult, key: SecretStr | None) -> Reply | CallFailure:
        """The reply, or why there is none."""
        answer = HttpResponse(result.status or 0, _JSON, result.body)
        return parse_reply(answer, self.request, by_tool=self.by_tool, key=key)


def read_expected_replies(path: Path) -> dict[str, ExpectedReply]:
    """How the reply to each request of a shard is read, by custom id."""
    with path.open("rb") as file:
        lines = (parse_object(line) for line in file)
        return {line["custom_id"]: _expected(line["body"]) for line in lines}


def _expected(body: JsonObject) -> ExpectedReply:
    most = body.get("max_tokens") or body["max_completion_tokens"]
    decoding = Decoding(max_tokens=most, top_logprobs=body.get("top_logprobs"))
    by_tool = "tools" in body
    schema = None
    if by_tool:
        function = body["tools"][0]["function"]
        schema = ReplySchema(function["name"], function["parameters"])
    elif "response_format" in body:
        wanted = body["response_format"]["json_schema"]
        schema = ReplySchema(wanted["name"], wanted["schema"])
    whole = Request(tuple(body["messages"]), decoding, schema)
    return ExpectedReply(replace(whole, messages=()), by_tool, bound_usage(whole))


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of one request."""

    custom_id: str
    status: int | None
    """Of its response; None where there was none."""
    body: bytes
    error: str = ""
    """One word on why it was not executed, where there was no response."""
    problem: str = ""


class BatchResults:
    """The results of a batch, joined to its requests by custom id and by nothing else.

    What belongs to no request is counted. Where two results for a request differ, neither is used: which is its own
    cannot be known.
    """

    def __init__(self, paths: Sequence[Path], wanted: Container[str]) -> None:
        self.strays: Counter[str] = Counter()
        self.contradicted: set[str] = set()
        self._paths = paths
        self._said: dict[str, str] = {}
        for line in self._lines():
            name = None if line is None else line.get("custom_id")
            if line is None or not isinstance(name, str):
                self.strays["unreadable"] += 1
            elif name not in wanted:
                self.strays["unknown"] += 1
            else:
                self._compare(name, _digest(line))

    def _compare(self, name: str, digest: str) -> None:
        known = self._said.get(name)
        if known is None:
            self._said[name] = digest
        elif known == digest:
            self.strays["repeated"] += 1
        else:
            self.strays["contradicted"] += 1
            self.contradicted.add(name)

    def _lines(self) -> Iterator[JsonObject | None]:
        """All lines of all files; None for one that cannot be read."""
        for path in self._paths:
            with path.open("rb") as file:
                for raw in file:
                    try:
                        yield parse_object(raw)
                    except RecordError:
                        yield None

    def __iter__(self) -> Iterator[BatchResult]:
        """One result for each request that has one."""
        left = set(self._said) - self.contradicted
        for line in self._lines():
            name = None if line is None else line.get("custom_id")
            if line is not None and isinstance(name, str) and name in left:
                left.discard(name)
                yield _result(name, line)


def _digest(line: JsonObject) -> str:
    result = _result("", line)
    return content_hash([result.status, result.body.decode("ascii"), result.error])


def _result(name: str, line: JsonObject) -> BatchResult:
    response, error = _object(line.get("response")), _object(line.get("error"))
    body = json.dumps(response.get("body"), sort_keys=True).encode("ascii")
    if type(status := response.get("status_code")) is int:
        return BatchResult(name, status, body)
    code = excerpt(str(error.get("code") or "not_executed")).removeprefix("batch_")
    return BatchResult(name, None, body, code, excerpt(str(error.get("message") or "")))


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
