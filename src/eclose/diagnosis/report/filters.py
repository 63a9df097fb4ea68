"""What responses can be filtered by. All logic is here: the page only compares numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.core.judgment import Criterion, Judgment, LocalFailure
from eclose.core.three_valued import Label
from eclose.core.verdict import FailureClass, TraceGroup, Verdict
from eclose.diagnosis.compare import RESPONSE_CLASSES, ResponseClass
from eclose.diagnosis.diagnose import Case, Evidence
from eclose.diagnosis.report.format import CODE_WORDS, CRITERION_WORDS, FAILURE_WORDS
from eclose.metrics.summary import GROUPINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """A response with what follows from its labels, worked out once."""

    case: Case
    verdict: Verdict
    outcome: str
    matched: Label
    unjudged: frozenset[Criterion]
    codes: frozenset[LocalFailure | None]
    before: str = ""
    """What its partner in another run is, by the names of ``class_name``; empty where there is no other run."""


def derive_facts(case: Case, before: str = "") -> ResponseFacts:
    """Work it out."""
    verdict = case.verdict
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    unjudged = frozenset(criterion for criterion, label in zip(Criterion, labels, strict=True) if label is None)
    codes = frozenset(step.failure for step in case.judgment.steps)
    return ResponseFacts(case, verdict, _outcome(verdict), case.matched, unjudged, codes, before)


def _outcome(verdict: Verdict) -> str:
    """What became of a response, in a word."""
    group = verdict.trace_group
    if group is TraceGroup.GAP:
        return f"gap_{verdict.failure_class}"
    if group is None:
        return f"undecided_{_first_unjudged(verdict).value}"
    return "reliable" if group is TraceGroup.RELIABLE else "unsound"


_CHAIN = (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)


def _first_unjudged(verdict: Verdict) -> Criterion:
    """Where the chain of an undecided response is lost from sight."""
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed)
    return next(criterion for criterion, label in zip(_CHAIN, labels, strict=True) if label is None)


OUTCOMES: Mapping[str, str] = {
    "reliable": "reliable",
    **{f"gap_{failure}": FAILURE_WORDS[failure][0] for failure in FailureClass},
    "unsound": "unsound step",
    **{f"undecided_{criterion.value}": f"undecided: {criterion.value} not judged" for criterion in _CHAIN},
}
"""Every outcome with its short name, from good to unknown."""

NO_PARTNER = "none"
"""Of a response that has no partner in the other run."""


def class_name(kind: ResponseClass) -> str:
    """The name of a class in a link: that of the outcome, with all undecided ones together."""
    if kind is None:
        return "undecided"
    if isinstance(kind, FailureClass):
        return f"gap_{kind}"
    return "unsound" if kind is TraceGroup.LOCALLY_UNSOUND else "reliable"


def class_words(kind: ResponseClass) -> str:
    """The class in words."""
    return "undecided" if kind is None else OUTCOMES[class_name(kind)]


@dataclass(frozen=True, slots=True)
class FacetOption:
    """One choice: the name it has in a link, what it is called, and whether a response belongs to it."""

    name: str
    label: str
    holds: Callable[[ResponseFacts], bool]


@dataclass(frozen=True, slots=True)
class Facet:
    """A question with a few answers, several of which may hold: one bit for each."""

    name: str
    label: str
    options: tuple[FacetOption, ...]

    def bits(self, one: ResponseFacts) -> int:
        """Which options hold of a response."""
        return sum(1 << place for place, option in enumerate(self.options) if option.holds(one))


def _by_outcome(name: str, label: str) -> FacetOption:
    return FacetOption(name, label, lambda one: one.outcome == name)


def _by_link(failure: FailureClass) -> FacetOption:
    return FacetOption(str(failure), FAILURE_WORDS[failure][0], lambda one: one.verdict.failure_class is failure)


def _by_code(code: LocalFailure) -> FacetOption:
    return FacetOption(code.value, f"{code.value} {CODE_WORDS[code][0]}", lambda one: code in one.codes)


def _by_evidence(kind: Evidence) -> FacetOption:
    return FacetOption(str(kind), str(kind), lambda one: one.case.evidence is kind)


def _by_open(criterion: Criterion) -> FacetOption:
    label = f"{criterion.value}: {CRITERION_WORDS[criterion]}"
    return FacetOption(criterion.value, label, lambda one: criterion in one.unjudged)


def _by_before(name: str, label: str) -> FacetOption:
    return FacetOption(name, label, lambda one: one.before == name)


def _class(outcome: str) -> str:
    """The class an outcome belongs to: it does not matter which label is missing."""
    return "undecided" if outcome.startswith("undecided_") else outcome


def _changed(one: ResponseFacts) -> bool:
    return one.before not in ("", NO_PARTNER, _class(one.outcome))


def _disagrees(one: ResponseFacts) -> bool:
    known = one.matched is not None and one.verdict.correct is not None
    return known and one.matched is not one.verdict.correct


def _lucky(one: ResponseFacts) -> bool:
    return one.verdict.correct is True and one.verdict.globally_sufficient is False


def _empty(one: ResponseFacts) -> bool:
    return not any(step.substantive for step in one.case.judgment.steps)


def differing_votes(judgment: Judgment) -> dict[str, tuple[Label, ...]]:
    """What a judge that was asked several times said each time, where it said both."""
    return {name: said for name, said in judgment.votes.items() if {True, False} <= set(said)}


FACETS: tuple[Facet, ...] = (
    Facet("outcome", "Outcome", (
        _by_outcome("reliable", "reliable"),
        FacetOption("gap", "in the gap, any kind", lambda one: bool(one.verdict.in_gap)),
        *(_by_outcome(f"gap_{failure}", f"in the gap: {FAILURE_WORDS[failure][0]}") for failure in FailureClass),
        _by_outcome("unsound", "an unsound step"),
        FacetOption("undecided", "undecided, any reason", lambda one: one.verdict.trace_group is None),
        *(_by_outcome(f"undecided_{one.value}", f"undecided: {one.value} not judged") for one in _CHAIN),
    )),
    Facet("before", "In the other run", (
        FacetOption("changed", "another class than here", _changed),
        *(_by_before(class_name(kind), f"in the gap: {class_words(kind)}" if isinstance(kind, FailureClass)
                     else class_words(kind)) for kind in RESPONSE_CLASSES),
        _by_before(NO_PARTNER, "no partner"),
    )),
    Facet("link", "First broken link", tuple(map(_by_link, FailureClass))),
    Facet("code", "Unsound step", tuple(map(_by_code, LocalFailure))),
    Facet("evidence", "Evidence", tuple(map(_by_evidence, Evidence))),
    Facet("answer", "Answer", (
        FacetOption("correct", "correct", lambda one: one.verdict.correct is True),
        FacetOption("wrong", "wrong", lambda one: one.verdict.correct is False),
        FacetOption("unjudged", "not judged", lambda one: one.verdict.correct is None),
        FacetOption("none", "none submitted", lambda one: one.case.response.answer is None),
    )),
    Facet("unjudged", "Not judged", (
        FacetOption("any", "anything", lambda one: bool(one.unjudged)), *map(_by_open, Criterion),
    )),
    Facet("look", "Worth a look", (
        FacetOption("inconsistent", "everything holds, yet wrong", lambda one: one.verdict.inconsistent),
        FacetOption("disagree", "judge and matching disagree", _disagrees),
        FacetOption("lucky", "correct, though the whole fails", _lucky),
        FacetOption("flipped", "the judge said both", lambda one: bool(differing_votes(one.case.judgment))),
        FacetOption("steps", "no substantive step", _empty),
        FacetOption("lines", "several answer lines", lambda one: one.case.response.answer_lines > 1),
        FacetOption("cut", "cut off", lambda one: one.case.response.cut_off),
    )),
)  # fmt: skip


def group_value(case: Case, by: str) -> str:
    """The dataset or model of a response, as the tables call it."""
    return GROUPINGS[by](case.row)


def facet_columns(looked: Sequence[ResponseFacts]) -> list[dict[str, Any]]:
    """Each facet with its options and a number for each response; facets that divide nothing are left out."""
    made = []
    for facet in FACETS:
        column = [facet.bits(one) for one in looked]
        used = [place for place in range(len(facet.options)) if any(bits >> place & 1 for bits in column)]
        if used:
            options = [[facet.options[place].name, facet.options[place].label, 1 << place] for place in used]
            made.append({"name": facet.name, "label": facet.label, "options": options, "column": column})
    return made
