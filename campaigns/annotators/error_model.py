"""Error model of simulated annotators: from the truth about a response to the labels one of them gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from eclose.annotation.forms import NO, YES
from eclose.core.judgment import INELIGIBILITY_PRECEDENCE, Ineligibility, LocalFailure, StepJudgment
from eclose.core.verdict import Verdict

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


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Error rates of a decision, by its true value."""

    missed: float = 0.0
    """Rate of yes where no is true."""
    alarms: float = 0.0
    """Rate of no where yes is true."""
    in_trouble: float | None = None
    """Rate of no where yes is true, in a response with an unsound step; None where it is ``alarms``."""

    def look(self, holds: bool, rng: Random, *, trouble: bool = False) -> bool:
        if not holds:
            return rng.random() < self.missed
        return rng.random() >= (self.in_trouble if trouble and self.in_trouble is not None else self.alarms)


EXACT = ErrorRates()


@dataclass(frozen=True, slots=True)
class SimulatedAnnotator:
    """Annotator with error rates; without rates, always right."""

    name: str
    rates: Mapping[str, ErrorRates] = field(default_factory=dict)
    """Error rates by the name of the field."""
    miscoded: float = 0.0
    """Rate of wrong codes."""
    codes: Mapping[str, float] = field(default_factory=dict)
    """Frequency of each code, by which a wrong code is drawn."""

    def steps(self, truth: Truth) -> list[dict[str, str]]:
        """Return the entries of pass A."""
        trouble = truth.trouble
        return [
            self._step(step, trouble, self._rng(truth.question, "A", number))
            for number, step in enumerate(truth.step_labels)
        ]

    def whole(self, truth: Truth, name: str) -> list[dict[str, str]]:
        """Return the single entry of pass B, C or D."""
        rng = self._rng(truth.question, name)
        holds = {field_name: bool(getattr(truth.verdict, field_name)) for field_name in _WHOLE[name]}
        return [
            {
                field_name: self._yes(field_name, value, rng, trouble=truth.trouble)
                for field_name, value in holds.items()
            }
        ]

    def screening(self, question: str, code: Ineligibility | None) -> list[dict[str, str]]:
        """Return the single entry of the screening of a question."""
        rng = self._rng(question, "S")
        if (eligible := self._yes("eligible", code is None, rng)) == YES:
            return [{"eligible": eligible}]
        return [{"eligible": eligible, "code": self._code(code, tuple(INELIGIBILITY_PRECEDENCE), rng)}]

    def _step(self, step: StepJudgment, trouble: bool, rng: Random) -> dict[str, str]:
        if (substantive := self._yes("substantive", bool(step.substantive), rng)) == NO:
            return {"substantive": substantive}
        # Who takes an idle step for one that counts finds nothing wrong with it.
        if (sound := self._yes("sound", step.sound is not False, rng, trouble=trouble)) == YES:
            return {"substantive": substantive, "sound": sound}
        return {
            "substantive": substantive,
            "sound": sound,
            "failure": self._code(step.failure, tuple(LocalFailure), rng),
        }

    def _yes(self, name: str, holds: bool, rng: Random, *, trouble: bool = False) -> str:
        return YES if self.rates.get(name, EXACT).look(holds, rng, trouble=trouble) else NO

    def _code(
        self,
        right: LocalFailure | Ineligibility | None,
        every: Sequence[LocalFailure | Ineligibility],
        rng: Random,
    ) -> str:
        if right is not None and rng.random() >= self.miscoded:
            return str(right)
        others = [code for code in every if code is not right]
        return str(rng.choices(others, [self.codes.get(str(code), 1.0) for code in others])[0])

    def _rng(self, *about: object) -> Random:
        """Return a generator that depends on annotator and subject alone, so decisions repeat on any machine."""
        return Random(f"{self.name}/{'/'.join(map(str, about))}")
