"""Check a ledger, and free what its interrupted and refused calls hold.

An unusable reply is rejected in one of two places: by the client (cut off, refused, wrong schema), with the reason
stored in the call, or by the step that sent the request, with the reason stored in the record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.calls.http.failures import CallFailureKind
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.ledger.reader import StoredCall, find_ledger_damage, list_ledger_runs, read_ledger_calls
from eclose.calls.paid_once import StoredAnswer
from eclose.errors import UserError
from eclose.files.jsonl import parse_dataclass

if TYPE_CHECKING:
    from pathlib import Path

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
    kind: CallFailureKind | None = None
    """Kind of failure of an unusable reply; None for a usable one."""
    problem: str | None = None
    text: str | None = None
    """Text of the reply; the raw body where there is no text."""

    @classmethod
    def of(cls, stored: StoredCall) -> CallDetails:
        """Parse a stored call."""
        if stored.damaged:
            return cls(stored, CallState.DAMAGED, problem="the row does not match its checksum.")
        if stored.settled is None:
            return cls(stored, CallState.UNANSWERED)
        answer = parse_dataclass(StoredAnswer, json.loads(stored.settled.body))
        text = None if answer.reply is None else answer.reply.text
        if answer.failure is None:
            return cls(stored, CallState.ANSWERED, text=text)
        failure = answer.failure
        return cls(stored, CallState.REFUSED, failure.kind, failure.problem, text or failure.raw)


async def check_ledger(where: Path | str) -> list[str]:
    """Recompute every key and checksum, and return one sentence per mismatch."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        return [problem async for problem in ledger.verify()]


@dataclass(frozen=True, slots=True)
class LedgerDeletion:
    """Calls to delete, and runs whose outcomes are deleted with them."""

    calls: frozenset[str]
    runs: frozenset[str]
    """Runs whose outcomes are all deleted: a reply may have served records that did not send the request."""


def find_damaged_calls(where: Path | str) -> LedgerDeletion:
    """Return the calls and runs with a damaged row."""
    calls, runs, lost = find_ledger_damage(where)
    # A damaged row without a readable call or run cannot be matched with the rows that depend on it.
    if lost:
        raise UserError(f"{lost} damaged rows belong to no known call. Restore the ledger from a copy.")
    runs |= {run for call in read_ledger_calls(where) if call.key in calls for run in call.runs}
    return LedgerDeletion(frozenset(calls), frozenset(runs))


def find_refused_calls(where: Path | str) -> LedgerDeletion:
    """Return the calls whose reply could not be used, and the runs that sent them."""
    refused = [call for call in read_ledger_calls(where) if CallDetails.of(call).state is CallState.REFUSED]
    runs = frozenset(run for call in refused for run in call.runs)
    return LedgerDeletion(frozenset(call.key for call in refused), runs)


async def delete_calls(where: Path | str, deletion: LedgerDeletion) -> None:
    """Delete calls and outcomes, so that the calls are sent, and paid, again when they are needed."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        await ledger.prune(calls=sorted(deletion.calls), runs=sorted(deletion.runs))


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
