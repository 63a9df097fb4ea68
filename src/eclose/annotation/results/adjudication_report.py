"""What went to an adjudicator and why, and what changed there. Nobody's name is in it, and no side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from eclose.annotation.adjudication import Trigger
from eclose.annotation.forms import Kind
from eclose.core.judgment import Criterion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.annotation.results.annotations import ToldQuestion, ToldResponse
    from eclose.core.judgment import Judgment, StepJudgment


@dataclass(frozen=True, slots=True)
class Changed:
    """Labels that people had given and an adjudicator did not uphold."""

    responses: int
    """In so many adjudicated responses at least one."""
    labels: int
    of: int
    """All labels that people had given of adjudicated responses."""


@dataclass(frozen=True, slots=True)
class Adjudication:
    """What was settled, and how."""

    asked: int
    """Responses, or questions, before people."""
    complete: int
    """Those that all who were asked have finished, one person alone left out: they can disagree with nobody."""
    to_adjudicate: int
    """Those that somebody must look at again."""
    disagreements: int
    """Of these: people differ."""
    flag_only: int
    """Of these: people agree on what cannot be right."""
    triggers: Mapping[Trigger, int]
    """How many for each reason; one may have several."""
    adjudicated: int
    reference_seen_before: int = 0
    """Adjudicated by somebody who knew the reference from another response to the question."""
    changed: Mapping[str, Changed] = field(default_factory=dict)
    """By criterion, and by what is said of steps where these were judged one by one."""

    @property
    def waiting(self) -> int:
        """Nobody has looked at these again yet."""
        return self.to_adjudicate - self.adjudicated


def adjudication_of(responses: Sequence[ToldResponse]) -> Adjudication:
    """Of responses."""
    settled = [one for one in responses if one.adjudicated is not None and one.triggers]
    seen = sum(bool(one.adjudicated and one.adjudicated.reference_seen_before) for one in settled)
    return replace(screening_adjudication_of(responses), reference_seen_before=seen, changed=_changed(settled))


def screening_adjudication_of(told: Sequence[ToldResponse | ToldQuestion]) -> Adjudication:
    """Of questions; of responses without what changed."""
    several = [one for one in told if len(one.said) >= max(2, one.asked)]
    found = [(one.triggers, one.adjudicated is not None) for one in several]
    disputed = [(triggers, settled) for triggers, settled in found if triggers]
    flagged = sum(triggers == (Trigger.INCONSISTENT,) for triggers, _ in disputed)
    counts = Counter(trigger for triggers, _ in disputed for trigger in triggers)
    return Adjudication(
        asked=len(told),
        complete=len(several),
        to_adjudicate=len(disputed),
        disagreements=len(disputed) - flagged,
        flag_only=flagged,
        triggers={trigger: counts[trigger] for trigger in Trigger if counts[trigger]},
        adjudicated=sum(settled for _, settled in disputed),
    )


_STEPS: Mapping[str, Callable[[StepJudgment], object]] = {
    "substantive status of a step": lambda step: step.substantive,
    "soundness of a step": lambda step: (step.substantive, step.sound),
    "reason of a step": lambda step: (step.substantive, step.sound, step.failure),
}


def _changed(settled: Sequence[ToldResponse]) -> dict[str, Changed]:
    """What follows from a change counts with it: of a step that is no longer substantive, soundness changes, too."""
    stepwise = [one for one in settled if one.kind is Kind.RESPONSE]
    steps = {name: _count(stepwise, partial(_of_steps, said)) for name, said in _STEPS.items()} if stepwise else {}
    return steps | {str(criterion): _count(settled, partial(_of_whole, criterion)) for criterion in Criterion}


def _of_steps(said: Callable[[StepJudgment], object], judgment: Judgment) -> Sequence[object]:
    return [said(step) for step in judgment.steps]


def _of_whole(criterion: Criterion, judgment: Judgment) -> Sequence[object]:
    return [judgment.label(criterion)]


def _count(settled: Sequence[ToldResponse], labels: Callable[[Judgment], Sequence[object]]) -> Changed:
    responses = changed = of = 0
    for one in settled:
        assert one.adjudicated is not None  # only these are counted
        upheld = labels(one.adjudicated.final)
        differing = 0
        for said in one.said:
            given = labels(said.final)
            of += len(given)
            differing += sum(mine != theirs for mine, theirs in zip(given, upheld, strict=True))
        changed += differing
        responses += bool(differing)
    return Changed(responses, changed, of)
