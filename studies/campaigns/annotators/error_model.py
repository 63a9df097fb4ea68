"""Error model of simulated annotators: from the truth about a response to the labels one of them gives it.

Every decision has a difficulty, the same for all annotators. They err only in hard decisions, each on their own with
the same chance: so two of them differ, and err alike, more often than with errors spread over all decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from eclose.values.judgment import INELIGIBILITY_PRECEDENCE, Ineligibility, LocalFailure, StepJudgment
from eclose.values.verdict import Verdict
from eclose_annotate.forms import NO, YES

_WHOLE = {"B": ("aligned",), "C": ("closed",), "D": ("correct", "complete")}


@dataclass(frozen=True, slots=True)
class Truth:
    """True labels of a response."""

    response_id: str
    question: str
    steps: tuple[str, ...]
    answer: str | None
    step_labels: tuple[StepJudgment, ...]
    verdict: Verdict

    @property
    def trouble(self) -> bool:
        """Whether one of its steps is unsound."""
        return any(step.sound is False for step in self.step_labels)


HARD_ERRORS = 0.35
"""Chance that an annotator errs in a hard decision."""


def difficulty(*about: object) -> float:
    """Return the difficulty of a decision about a subject, from 0 (hardest) to 1, in a reproducible random order."""
    return Random(f"difficulty/{'/'.join(map(str, about))}").random()


@dataclass(frozen=True, slots=True)
class HardDecisions:
    """Difficulties below which a decision is hard, by its true value."""

    no: float = 0.0
    yes: float = 0.0
    yes_in_trouble: float = 0.0
    """Where yes is true, in a response with an unsound step."""

    def decide(self, holds: bool, level: float, rng: Random, *, trouble: bool = False) -> bool:
        """Return the decision of an annotator in a case of this difficulty."""
        limit = (self.yes_in_trouble if trouble else self.yes) if holds else self.no
        errs = level < limit and rng.random() < HARD_ERRORS
        return holds is not errs


EXACT = HardDecisions()


@dataclass(frozen=True, slots=True)
class SimulatedAnnotator:
    """Annotator who errs in hard decisions; without any, always right."""

    name: str
    hard: Mapping[str, HardDecisions] = field(default_factory=dict)
    """Hard decisions by the name of the field."""
    hard_codes: float = 0.0
    """Difficulty below which a code is hard."""
    codes: Mapping[str, float] = field(default_factory=dict)
    """Frequency of each code, by which a wrong code is drawn."""

    def steps(self, truth: Truth) -> list[dict[str, str]]:
        """Return the entries of pass A."""
        trouble = truth.trouble
        return [
            self._step(step, (truth.response_id, number), trouble, self._rng(truth.question, "A", number))
            for number, step in enumerate(truth.step_labels)
        ]

    def whole(self, truth: Truth, name: str) -> list[dict[str, str]]:
        """Return the single entry of pass B, C or D."""
        rng = self._rng(truth.question, name)
        holds = {field_name: bool(getattr(truth.verdict, field_name)) for field_name in _WHOLE[name]}
        return [
            {
                field_name: self._yes(field_name, value, (truth.response_id,), rng, trouble=truth.trouble)
                for field_name, value in holds.items()
            }
        ]

    def screening(self, question: str, code: Ineligibility | None) -> list[dict[str, str]]:
        """Return the single entry of the screening of a question."""
        rng = self._rng(question, "S")
        if (eligible := self._yes("eligible", code is None, (question,), rng)) == YES:
            return [{"eligible": eligible}]
        return [{"eligible": eligible, "code": self._code(code, tuple(INELIGIBILITY_PRECEDENCE), (question,), rng)}]

    def _step(self, step: StepJudgment, about: Sequence[object], trouble: bool, rng: Random) -> dict[str, str]:
        substantive = self._yes("substantive", bool(step.substantive), about, rng, trouble=trouble)
        if substantive == NO:
            return {"substantive": substantive}
        # An annotator who takes an idle step for a substantive one finds nothing wrong with it.
        if (sound := self._yes("sound", step.sound is not False, about, rng, trouble=trouble)) == YES:
            return {"substantive": substantive, "sound": sound}
        return {
            "substantive": substantive,
            "sound": sound,
            "failure": self._code(step.failure, tuple(LocalFailure), about, rng),
        }

    def _yes(self, name: str, holds: bool, about: Sequence[object], rng: Random, *, trouble: bool = False) -> str:
        level = difficulty(name, *about)
        return YES if self.hard.get(name, EXACT).decide(holds, level, rng, trouble=trouble) else NO

    def _code(
        self,
        right: LocalFailure | Ineligibility | None,
        every: Sequence[LocalFailure | Ineligibility],
        about: Sequence[object],
        rng: Random,
    ) -> str:
        # Where nothing is wrong, all who think so see the same reason.
        reason = right or self._draw(every, Random(f"seen/{'/'.join(map(str, about))}"))
        if not (difficulty("code", *about) < self.hard_codes and rng.random() < HARD_ERRORS):
            return str(reason)
        return str(self._draw([code for code in every if code is not reason], rng))

    def _draw(self, codes: Sequence[LocalFailure | Ineligibility], rng: Random) -> LocalFailure | Ineligibility:
        return rng.choices(codes, [self.codes.get(str(code), 1.0) for code in codes])[0]

    def _rng(self, *about: object) -> Random:
        """Return a generator that depends on annotator and subject alone, so decisions repeat on any machine."""
        return Random(f"{self.name}/{'/'.join(map(str, about))}")
