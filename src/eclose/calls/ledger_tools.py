"""Show, verify and prune the calls of a ledger.

An unusable reply is rejected in one of two places: by the client (cut off, refused, wrong schema), with the reason
stored in the call, or by the step that sent the request, with the reason stored in the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from eclose.calls.cache import StoredAnswer
from eclose.errors import SettingError, UserError
from eclose.models.openai.failures import CallFailureKind
from eclose.store.ledger.database import compact_ledger_file, is_database_url
from eclose.store.ledger.ledger import Ledger, RunAge
from eclose.store.ledger.reader import CallPurpose, StoredCall, find_ledger_damage, list_ledger_runs, read_ledger_calls
from eclose.store.records.jsonl import parse_dataclass

MAINTENANCE_RUN = "ledger command"
"""Name of the run that maintenance uses; it has no records."""


class CallState(StrEnum):
    """State of a call in a ledger."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The model gave an unusable answer: refusal, length, empty or invalid."""
    UNANSWERED = "unanswered"
    """An intent without a stored reply."""
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CallDetails:
    """A stored call with its state and the parts of its reply."""

    stored: StoredCall
    state: CallState
    kind: CallFailureKind | None
    """Kind of failure of an unusable reply; None for a usable one."""
    problem: str | None
    text: str | None
    """Text of the reply; the raw body where there is no text."""

    @classmethod
    def of(cls, stored: StoredCall) -> CallDetails:
        """Parse a stored call."""
        if stored.damaged:
            return cls(stored, CallState.DAMAGED, None, "the row does not match its checksum.", None)
        if stored.settled is None:
            return cls(stored, CallState.UNANSWERED, None, None, None)
        answer = parse_dataclass(StoredAnswer, json.loads(stored.settled.body))
        text = None if answer.reply is None else answer.reply.text
        if answer.failure is None:
            return cls(stored, CallState.ANSWERED, None, None, text)
        return cls(stored, CallState.REFUSED, answer.failure.kind, answer.failure.problem, text or answer.failure.raw)

    @property
    def model(self) -> str:
        """Name of the model."""
        return "?" if self.stored.request is None else str(self.stored.request.get("model"))

    @property
    def unjudged(self) -> dict[str, Any]:
        """Missing labels of the judged records of this call, with the reasons."""
        bodies = [purpose.body for purpose in self.stored.purposes if isinstance(purpose.body, dict)]
        missing = [body["unjudged"] for body in bodies if isinstance(body.get("unjudged"), dict)]
        missing += [{"evidence": body["evidence_unjudged"]} for body in bodies if body.get("evidence_unjudged")]
        return {name: reason for labels in missing for name, reason in labels.items()}

    def as_json(self) -> dict[str, Any]:
        """Return all fields of the call as plain values."""
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
            "cached_tokens": None if settled is None else settled.cached_tokens,
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
    """Conditions on calls; a call matches when it meets all conditions that are set."""

    key: str | None = None
    """Key ``sha256:...``, or its beginning."""
    record: str | None = None
    stage: str | None = None
    kind: str | None = None
    """A state (answered, refused, unanswered, damaged) or a kind of failure."""
    reason: str | None = None
    """Part of the text that explains an unusable reply."""

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        kinds = [*CallState, *(kind for kind in CallFailureKind if kind.semantic)]
        if self.kind is not None and self.kind not in kinds:
            raise SettingError(f"--kind {self.kind}: use one of {', '.join(kinds)}.")

    @property
    def empty(self) -> bool:
        """Whether no condition is set."""
        return self == CallFilter()

    def matches(self, view: CallDetails) -> bool:
        """Return whether a call meets all conditions."""
        purposes = view.stored.purposes
        return (
            (self.key is None or view.stored.key.removeprefix("sha256:").startswith(self.key.removeprefix("sha256:")))
            and (self.record is None or any(purpose.record_id == self.record for purpose in purposes))
            and (self.stage is None or any(purpose.stage == self.stage for purpose in purposes))
            and (self.kind is None or self.kind in (view.state, view.kind))
            and (self.reason is None or self.reason.casefold() in (view.problem or "").casefold())
        )


def find_ledger_calls(where: Path | str, call_filter: CallFilter | None = None) -> Iterator[CallDetails]:
    """Yield the calls of a ledger that match a filter, in the order of their first intent."""
    call_filter = call_filter or CallFilter()
    # A generator: a ledger may hold millions of calls, and is read a page at a time.
    views = (CallDetails.of(stored) for stored in read_ledger_calls(where))
    return (view for view in views if call_filter.matches(view))


async def verify_ledger(where: Path | str) -> list[str]:
    """Recompute every key and checksum, and return one sentence per mismatch."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        return [problem async for problem in ledger.verify()]


@dataclass(frozen=True, slots=True)
class LedgerPrunePlan:
    """Calls to delete, and runs whose outcomes are deleted with them."""

    calls: frozenset[str]
    runs: frozenset[str]
    """Runs whose outcomes are all deleted: a reply may have served records that did not send the request."""


def plan_ledger_prune(where: Path | str, call_filter: CallFilter, *, damaged: bool = False) -> LedgerPrunePlan:
    """Return what pruning deletes: the calls that match a filter, and with ``damaged`` the damaged rows."""
    if call_filter.empty and not damaged:
        raise SettingError("name what to prune: --key, --kind, --reason, --record, --stage, --damaged or --orphans.")
    calls: set[str] = set()
    runs: set[str] = set()
    if damaged:
        damage = find_ledger_damage(where)
        # A damaged row without a readable call or run cannot be matched with the rows that depend on it.
        if damage.lost:
            raise UserError(f"{damage.lost} damaged rows belong to no known call. Restore the ledger from a copy.")
        calls, runs = set(damage.calls), set(damage.runs)
    for stored in read_ledger_calls(where):
        if stored.key in calls or (not call_filter.empty and call_filter.matches(CallDetails.of(stored))):
            calls.add(stored.key)
            # The outcomes go with the call: they may have been computed from it, and would not be computed again
            # otherwise.
            runs |= {purpose.run for purpose in stored.purposes}
    return LedgerPrunePlan(frozenset(calls), frozenset(runs))


async def prune_ledger(where: Path | str, plan: LedgerPrunePlan) -> int:
    """Delete the calls and outcomes of a plan, and return the number of deleted rows."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        return await ledger.prune(calls=sorted(plan.calls), runs=sorted(plan.runs))


_AGE = re.compile(r"(\d+)\s*([hdw])")
_AGE_SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800}


def parse_age(text: str) -> float:
    """Return the seconds of an age such as ``90d``, ``12h`` or ``8w``.

    Raises:
        SettingError: It is not a whole number of hours, days or weeks.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise SettingError(f"--older-than {text}: write a number of hours, days or weeks, such as 12h, 90d or 8w.")
    return int(match[1]) * _AGE_SECONDS[match[2]]


@dataclass(frozen=True, slots=True)
class LedgerRetention:
    """Runs of a ledger by age: those to delete, and older ones that are kept, with the reason."""

    delete: tuple[RunAge, ...]
    keep: tuple[tuple[RunAge, str], ...]


async def plan_ledger_retention(where: Path | str, older_than: float) -> LedgerRetention:
    """Return the runs that were last worked on more than ``older_than`` seconds ago.

    A run that is not finished is kept.
    """
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        runs = [run for run in await ledger.list_run_ages() if run.run != MAINTENANCE_RUN]
    delete: list[RunAge] = []
    keep: list[tuple[RunAge, str]] = []
    for run in runs:
        if run.age <= older_than:
            continue
        if run.active:
            keep.append((run, "a process works on it"))
        elif not run.finished:
            keep.append((run, f"it is not finished: {run.open_records:,} records have no outcome or are quarantined"))
        else:
            delete.append(run)
    return LedgerRetention(tuple(delete), tuple(keep))


async def delete_ledger_runs(where: Path | str, runs: Iterable[str]) -> int:
    """Delete runs with the calls that no other run has sent, shrink the file, and return the number of rows."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        deleted = 0
        for run in runs:
            deleted += await ledger.delete_run(run)
    if not is_database_url(where):
        compact_ledger_file(Path(where))
    return deleted


async def release_interrupted_calls(where: Path | str, *, dry_run: bool = False) -> int:
    """Release the reservation of every interrupted call as not billed, in all runs, and return their number.

    No run may be in progress: its calls in flight look like interrupted ones.
    """
    released = 0
    for run in list_ledger_runs(where):
        async with Ledger.open(where, run=run) as ledger:
            orphans = await ledger.list_orphans()
            released += len(orphans)
            while orphans and not dry_run:
                # A release closes the newest open intent of a call, which may be an answered one: repeat to the end.
                for key in {intent.key for intent in orphans}:
                    await ledger.release(key, any_writer=True)
                orphans = await ledger.list_orphans()
    return released
