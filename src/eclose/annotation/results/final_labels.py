"""The labels that hold, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.annotation.adjudication import Origin, Trigger
from eclose.annotation.results.annotations import by
from eclose.core.judgment import Criterion
from eclose.core.response import Source
from eclose.core.three_valued import Label
from eclose.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.annotation.adjudication import Settled
    from eclose.annotation.results.annotations import Told, ToldResponse
    from eclose.core.judgment import Judgment, Screening

PEOPLE = "people"
"""The judge whose word the settled labels are."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from the five labels."""

    globally_sufficient: Label
    in_gap: Label
    reliable: Label
    failure_class: FailureClass | None
    trace_group: TraceGroup | None


@dataclass(frozen=True, slots=True)
class SettledLabel:
    """The labels of a response and where they come from; a line of ``labels.jsonl``."""

    response_id: str
    question_id: str
    origin: Origin
    labels: Mapping[Criterion, Label]
    derived: Derived
    annotators: tuple[str, ...]
    adjudicator: str | None = None
    triggers: tuple[Trigger, ...] = ()
    """Why it was looked at again."""
    changed: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """What the annotators had said, in their order, for every label that somebody had otherwise."""
    reference_seen_before: bool = False
    benchmark: str | None = None
    source: Source | None = None

    @property
    def verdict(self) -> Verdict:
        """The five labels."""
        return Verdict(*(self.labels[name] for name in Criterion))


def settled_judgments(told: Told, judge: str = PEOPLE) -> Iterator[Judgment]:
    """One for each response that is settled, as another command reads judgments."""
    for _, settled in _settled(told):
        yield by(judge, settled.judgment)


def settled_verdicts(told: Told) -> Iterator[SettledVerdict]:
    """One for each response that is settled, as another command reads verdicts."""
    for one, settled in _settled(told):
        yield SettledVerdict(one.response_id, one.question_id, settled.judgment.verdict, one.benchmark, one.source)


def settled_labels(told: Told) -> Iterator[SettledLabel]:
    """One for each response that is settled."""
    for one, settled in _settled(told):
        verdict = settled.judgment.verdict
        last = one.adjudicated if settled.origin is Origin.ADJUDICATED else None
        yield SettledLabel(
            one.response_id,
            one.question_id,
            settled.origin,
            {name: settled.judgment.label(name) for name in Criterion},
            Derived(
                verdict.globally_sufficient,
                verdict.in_gap,
                verdict.reliable,
                verdict.failure_class,
                verdict.trace_group,
            ),
            tuple(str(each.annotator) for each in one.said),
            None if last is None else last.annotator,
            settled.triggers,
            settled.changed,
            last is not None and last.reference_seen_before,
            one.benchmark,
            one.source,
        )


def settled_screenings(told: Told, judge: str = PEOPLE) -> Iterator[Screening]:
    """One for each question that is settled, as ``eclose screen`` writes them."""
    for one in told.questions:
        if (settled := one.settled) is not None:
            yield by(judge, settled)


def _settled(told: Told) -> Iterator[tuple[ToldResponse, Settled]]:
    for one in told.responses:
        if (settled := one.settled) is not None:
            yield one, settled
