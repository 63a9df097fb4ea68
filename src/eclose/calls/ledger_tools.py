"""Calls of a ledger as a person reads them, and what is pruned so that it is asked again.

A reply is refused by one of two readers: the client (cut off, refused, of the wrong shape), whose reason is kept with
the reply, and the stage that asked for it, whose reason is kept with the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.calls.cache import StoredAnswer
from eclose.errors import SettingError, UserError
from eclose.models.openai.failures import FailureKind
from eclose.store.ledger.ledger import Ledger
from eclose.store.ledger.reader import CallPurpose, StoredCall, find_damage, list_runs, read_calls
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from pathlib import Path

TOOL = "ledger command"
"""The run that maintenance is done under; it has no records of its own."""


class CallState(StrEnum):
    """What a ledger holds of a call."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The model answered, and its answer cannot be used: refusal, length, empty or invalid."""
    UNANSWERED = "unanswered"
    """It was intended, and no reply is kept."""
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CallView:
    """A call with its reply taken apart."""

    stored: StoredCall
    state: CallState
    kind: FailureKind | None
    """Why the reply was refused; None where it was not."""
    problem: str | None
    text: str | None
    """What the model said; what the server sent where that is not known."""

    @classmethod
    def of(cls, stored: StoredCall) -> CallView:
        """Take a stored call apart."""
        if stored.damaged:
            return cls(stored, CallState.DAMAGED, None, "the row does not fit its checksum.", None)
        if stored.settled is None:
            return cls(stored, CallState.UNANSWERED, None, None, None)
        kept = parse_record(StoredAnswer, json.loads(stored.settled.body))
        text = None if kept.reply is None else kept.reply.text
        if kept.failure is None:
            return cls(stored, CallState.ANSWERED, None, None, text)
        return cls(stored, CallState.REFUSED, kept.failure.kind, kept.failure.problem, text or kept.failure.raw)

    @property
    def model(self) -> str:
        """The name of the model that was asked."""
        return "?" if self.stored.request is None else str(self.stored.request.get("model"))

    @property
    def unjudged(self) -> dict[str, Any]:
        """The labels that the records of this call are missing, with the reason, where it was asked of a judge."""
        bodies = [purpose.body for purpose in self.stored.purposes if isinstance(purpose.body, dict)]
        missing = [body["unjudged"] for body in bodies if isinstance(body.get("unjudged"), dict)]
        return {name: reason for labels in missing for name, reason in labels.items()}

    def as_json(self) -> dict[str, Any]:
        """Return everything that is known of the call as plain values."""
        settled = self.stored.settled
        return {
            "key": self.stored.key,
            "state": str(self.state),
            "kind": None if self.kind is None else str(self.kind),
            "problem": self.problem,
            "model": self.model,
            "request": self.stored.request,
            "reply": self.text,
            "prompt_tokens": None if settled is None else settled.usage[0],
            "completion_tokens": None if settled is None else settled.usage[1],
            "cost_millionths": None if settled is None else settled.cost,
            "records": [_record(purpose) for purpose in self.stored.purposes],
        }


def _record(purpose: CallPurpose) -> dict[str, Any]:
    error = purpose.body.get("error") if isinstance(purpose.body, Mapping) else None
    return {
        "run": purpose.run,
        "stage": purpose.stage,
        "record": purpose.record_id,
        "outcome": purpose.outcome,
        "reason": purpose.reason,
        "error": error,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Which calls are meant: those that meet all of what is set."""

    key: str | None = None
    """``sha256:...``, or the beginning of one."""
    record: str | None = None
    stage: str | None = None
    kind: str | None = None
    """A state (answered, refused, unanswered, damaged) or the kind of a refusal."""
    reason: str | None = None
    """A part of the text that says why a reply was refused."""

    def __post_init__(self) -> None:
        """Refuse a kind that no call can have."""
        known = [*CallState, *(kind for kind in FailureKind if kind.semantic)]
        if self.kind is not None and self.kind not in known:
            raise SettingError(f"--kind {self.kind}: use one of {', '.join(known)}.")

    @property
    def empty(self) -> bool:
        """Whether every call is meant."""
        return self == CallFilter()

    def matches(self, view: CallView) -> bool:
        """Whether a call is meant."""
        purposes = view.stored.purposes
        return (
            (self.key is None or view.stored.key.removeprefix("sha256:").startswith(self.key.removeprefix("sha256:")))
            and (self.record is None or any(purpose.record_id == self.record for purpose in purposes))
            and (self.stage is None or any(purpose.stage == self.stage for purpose in purposes))
            and (self.kind is None or self.kind in (view.state, view.kind))
            and (self.reason is None or self.reason.casefold() in (view.problem or "").casefold())
        )


def find_calls(where: Path | str, wanted: CallFilter | None = None) -> Iterator[CallView]:
    """Yield the calls of a ledger that a filter matches, in the order they were first made."""
    wanted = wanted or CallFilter()
    views = (CallView.of(stored) for stored in read_calls(where))
    return (view for view in views if wanted.matches(view))


async def verify_ledger(where: Path | str) -> list[str]:
    """Compute every key and checksum again, and return a sentence for everything that does not fit."""
    async with Ledger.open(where, run=TOOL) as ledger:
        return [problem async for problem in ledger.verify()]


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What is to be deleted: calls, and the outcomes of the runs that used them."""

    calls: frozenset[str]
    runs: frozenset[str]
    """All their outcomes are forgotten: a reply may have served records that did not ask for it themselves."""


def plan_prune(where: Path | str, wanted: CallFilter, *, damaged: bool = False) -> PrunePlan:
    """Return what pruning would delete: the calls that a filter matches, and damaged rows if asked for."""
    if wanted.empty and not damaged:
        raise SettingError("name what to prune: --key, --kind, --reason, --record, --stage, --damaged or --orphans.")
    calls: set[str] = set()
    runs: set[str] = set()
    if damaged:
        damage = find_damage(where)
        if damage.lost:
            raise UserError(f"{damage.lost} damaged rows belong to no known call. Restore the ledger from a copy.")
        calls, runs = set(damage.calls), set(damage.runs)
    for stored in read_calls(where):
        if stored.key in calls or (not wanted.empty and wanted.matches(CallView.of(stored))):
            calls.add(stored.key)
            runs |= {purpose.run for purpose in stored.purposes}
    return PrunePlan(frozenset(calls), frozenset(runs))


async def prune_ledger(where: Path | str, plan: PrunePlan) -> int:
    """Delete what a plan names; returns the number of rows that were deleted."""
    async with Ledger.open(where, run=TOOL) as ledger:
        return await ledger.prune(calls=sorted(plan.calls), runs=sorted(plan.runs))


async def release_orphans(where: Path | str, *, dry_run: bool = False) -> int:
    """Declare every call that broke off as not billed, in all runs; returns how many there were.

    No run may be under way: what it has in flight cannot be told from what broke off.
    """
    released = 0
    for run in list_runs(where):
        async with Ledger.open(where, run=run) as ledger:
            orphans = await ledger.list_orphans()
            released += len(orphans)
            while orphans and not dry_run:
                # The newest open intent of a call goes first, and that may be one that was answered.
                for key in {intent.key for intent in orphans}:
                    await ledger.release(key, any_writer=True)
                orphans = await ledger.list_orphans()
    return released
