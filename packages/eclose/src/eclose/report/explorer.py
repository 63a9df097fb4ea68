"""The list of responses on the page: its filters, and which responses of a large run it holds.

All logic is here: the page only compares numbers. The page of a small run lists every response. From
``MAX_PAGE_RESPONSES`` on it would be too large to open quickly, so it lists a sample and says so: failures first,
spread over models, datasets and kinds of failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.compare import CHAIN_CRITERIA, RESPONSE_CLASSES, ResponseClass, name_outcome
from eclose.diagnosis.diagnose import EvidenceSufficiency, JudgedCase
from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.files.record_file import hash_ids
from eclose.metrics.summary import VERDICT_GROUPINGS
from eclose.report.wording import CODE_WORDS, CRITERION_WORDS, FAILURE_WORDS
from eclose.stats.arrays import number_distinct_labels
from eclose.values.judgment import Criterion, Judgment, LocalFailure
from eclose.values.three_valued import Label
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """A response with the values derived from its labels."""

    case: JudgedCase
    verdict: Verdict
    outcome: str
    matched: Label
    unjudged: frozenset[Criterion]
    codes: frozenset[LocalFailure | None]
    before: str = ""
    """Class of its partner in a base run, as ``name_response_class`` names it; empty without a base run."""


def derive_response_facts(case: JudgedCase, before: str = "") -> ResponseFacts:
    """Derive what the filters need from the labels of a response."""
    verdict = case.verdict
    # In the order of Criterion.
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    unjudged = frozenset(criterion for criterion, label in zip(Criterion, labels, strict=True) if label is None)
    codes = frozenset(step.failure for step in case.judgment.steps)
    return ResponseFacts(
        case=case,
        verdict=verdict,
        outcome=name_outcome(verdict),
        matched=case.matched,
        unjudged=unjudged,
        codes=codes,
        before=before,
    )


OUTCOME_WORDS: Mapping[str, str] = {
    "reliable": "reliable",
    **{f"gap_{failure}": FAILURE_WORDS[failure][0] for failure in FailureClass},
    "unsound": "unsound step",
    **{f"undecided_{criterion.value}": f"undecided: {criterion.value} not judged" for criterion in CHAIN_CRITERIA},
}
"""Every outcome with its short description, from reliable to undecided."""

NO_PARTNER = "none"
"""Class name for a response without a partner in the base run."""


def name_response_class(response_class: ResponseClass) -> str:
    """Return the name of a class in links: that of the outcome, with one name for all undecided ones."""
    if response_class is None:
        return "undecided"
    if isinstance(response_class, FailureClass):
        return f"gap_{response_class}"
    return "unsound" if response_class is TraceGroup.LOCALLY_UNSOUND else "reliable"


def describe_response_class(response_class: ResponseClass) -> str:
    """Return the description of a class."""
    return "undecided" if response_class is None else OUTCOME_WORDS[name_response_class(response_class)]


@dataclass(frozen=True, slots=True)
class ExplorerFacetOption:
    """A choice of a facet: its name in links, its label, and the test that a response satisfies it."""

    name: str
    label: str
    holds: Callable[[ResponseFacts], bool]


@dataclass(frozen=True, slots=True)
class ExplorerFacet:
    """A filter with a few options, of which several may hold for a response: one bit each."""

    name: str
    label: str
    options: tuple[ExplorerFacetOption, ...]

    def bits(self, facts: ResponseFacts) -> int:
        """Return the options that hold for a response, as bits."""
        # The page compares bits and knows no definitions, so it cannot disagree with the tables (decision 0022).
        return sum(1 << bit for bit, option in enumerate(self.options) if option.holds(facts))


def _by_outcome(name: str, label: str) -> ExplorerFacetOption:
    return ExplorerFacetOption(name, label, lambda facts: facts.outcome == name)


def _by_link(failure: FailureClass) -> ExplorerFacetOption:
    return ExplorerFacetOption(
        str(failure), FAILURE_WORDS[failure][0], lambda facts: facts.verdict.failure_class is failure
    )


def _by_code(code: LocalFailure) -> ExplorerFacetOption:
    return ExplorerFacetOption(code.value, f"{code.value} {CODE_WORDS[code][0]}", lambda facts: code in facts.codes)


def _by_evidence(kind: EvidenceSufficiency) -> ExplorerFacetOption:
    return ExplorerFacetOption(str(kind), str(kind), lambda facts: facts.case.evidence is kind)


def _by_open(criterion: Criterion) -> ExplorerFacetOption:
    label = f"{criterion.value}: {CRITERION_WORDS[criterion]}"
    return ExplorerFacetOption(criterion.value, label, lambda facts: criterion in facts.unjudged)


def _by_before(name: str, label: str) -> ExplorerFacetOption:
    return ExplorerFacetOption(name, label, lambda facts: facts.before == name)


def _changed(facts: ResponseFacts) -> bool:
    # Whichever label is missing, undecided is one class.
    here = "undecided" if facts.outcome.startswith("undecided_") else facts.outcome
    return facts.before not in ("", NO_PARTNER, here)


def _disagrees(facts: ResponseFacts) -> bool:
    # An unknown side is not a disagreement.
    both = facts.matched is not None and facts.verdict.correct is not None
    return both and facts.matched is not facts.verdict.correct


def find_split_judge_votes(judgment: Judgment) -> dict[str, tuple[Label, ...]]:
    """Return the votes of a judge asked several times, for labels on which it gave both answers."""
    return {name: votes for name, votes in judgment.votes.items() if {True, False} <= set(votes)}


EXPLORER_FACETS: tuple[ExplorerFacet, ...] = (
    ExplorerFacet("outcome", "Outcome", (
        _by_outcome("reliable", "reliable"),
        ExplorerFacetOption("gap", "in the gap, any kind", lambda facts: bool(facts.verdict.in_gap)),
        *(_by_outcome(f"gap_{failure}", f"in the gap: {FAILURE_WORDS[failure][0]}") for failure in FailureClass),
        _by_outcome("unsound", "an unsound step"),
        ExplorerFacetOption("undecided", "undecided, any reason", lambda facts: facts.verdict.trace_group is None),
        *(_by_outcome(f"undecided_{label.value}", f"undecided: {label.value} not judged") for label in CHAIN_CRITERIA),
    )),
    # Bits are assigned in this order; links name options, so the order may change.
    ExplorerFacet("before", "In the other run", (
        ExplorerFacetOption("changed", "another class than here", _changed),
        *(_by_before(name_response_class(each),
                     f"in the gap: {describe_response_class(each)}" if isinstance(each, FailureClass)
                     else describe_response_class(each)) for each in RESPONSE_CLASSES),
        _by_before(NO_PARTNER, "no partner"),
    )),
    ExplorerFacet("link", "First broken link", tuple(map(_by_link, FailureClass))),
    ExplorerFacet("code", "Unsound step", tuple(map(_by_code, LocalFailure))),
    ExplorerFacet("evidence", "Evidence", tuple(map(_by_evidence, EvidenceSufficiency))),
    ExplorerFacet("answer", "Answer", (
        ExplorerFacetOption("correct", "correct", lambda facts: facts.verdict.correct is True),
        ExplorerFacetOption("wrong", "wrong", lambda facts: facts.verdict.correct is False),
        ExplorerFacetOption("unjudged", "not judged", lambda facts: facts.verdict.correct is None),
        ExplorerFacetOption("none", "none submitted", lambda facts: facts.case.response.answer is None),
    )),
    ExplorerFacet("unjudged", "Not judged", (
        ExplorerFacetOption("any", "anything", lambda facts: bool(facts.unjudged)),
        *map(_by_open, Criterion),
    )),
    ExplorerFacet("look", "Worth a look", (
        ExplorerFacetOption("inconsistent", "everything holds, yet wrong", lambda facts: facts.verdict.inconsistent),
        ExplorerFacetOption("disagree", "judge and matching disagree", _disagrees),
        ExplorerFacetOption("lucky", "correct, though the whole fails",
                            lambda facts: facts.verdict.correct is True and facts.verdict.globally_sufficient is False),
        ExplorerFacetOption("flipped", "the judge gave both answers",
                            lambda facts: bool(find_split_judge_votes(facts.case.judgment))),
        ExplorerFacetOption("steps", "no substantive step",
                            lambda facts: not any(step.substantive for step in facts.case.judgment.steps)),
        ExplorerFacetOption("lines", "several answer lines", lambda facts: facts.case.response.answer_lines > 1),
        ExplorerFacetOption("cut", "cut off", lambda facts: facts.case.response.cut_off),
    )),
)  # fmt: skip


def get_response_group(case: JudgedCase, by: str) -> str:
    """Return the dataset or model of a response, as the tables name it."""
    return VERDICT_GROUPINGS[by](case.row)


def build_facet_columns(responses: Sequence[ResponseFacts]) -> list[dict[str, Any]]:
    """Return each facet with its options and a number for each response; facets without a response are left out."""
    columns = {facet.name: [facet.bits(facts) for facts in responses] for facet in EXPLORER_FACETS}
    entries: list[dict[str, Any]] = []
    for facet in EXPLORER_FACETS:
        column = columns[facet.name]
        used = reduce(or_, column, 0)
        # Options without any response would only lengthen the menu.
        options = [[option.name, option.label, 1 << bit] for bit, option in enumerate(facet.options) if used >> bit & 1]
        if options:
            entries.append({"name": facet.name, "label": facet.label, "options": options, "column": column})
    # Search, dataset and model stand in the first row of the page as well, which holds five filters at most.
    names = [entry["name"] for entry in entries]
    first_row = ("outcome", "before" if "before" in names else "answer")
    return [{**entry, "main": int(entry["name"] in first_row)} for entry in entries]


MAX_PAGE_RESPONSES = 30_000
"""Responses that a page lists at most."""


@dataclass(frozen=True, slots=True)
class RunSample:
    """Responses that a page lists, of all responses of a run."""

    cases: tuple[JudgedCase, ...]
    """The listed responses with their judgments, in the order of the run."""
    left_out: int = 0
    """Judged responses that are not listed."""
    outcomes: Mapping[str, tuple[int, int]] | None = None
    """Listed and judged responses by outcome; None where that was not counted."""

    @property
    def total(self) -> int:
        """Number of judged responses of the run."""
        return len(self.cases) + self.left_out

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is listed and what is not; empty where every response is listed."""
        if not self.left_out:
            return ()
        listed = f"This page lists {len(self.cases):,} of {self.total:,} responses; its figures are of all of them."
        parts = [
            f"{OUTCOME_WORDS[outcome]} {shown:,} of {judged:,}"
            for outcome, (shown, judged) in (self.outcomes or {}).items()
        ]
        return (listed, f"Listed by outcome: {', '.join(parts)}.") if parts else (listed,)


def sample_report_cases(cases: Sequence[JudgedCase], limit: int | None = None) -> RunSample:
    """Return the responses that a page lists: all up to a limit, otherwise a sample of that size."""
    limit = MAX_PAGE_RESPONSES if limit is None else limit
    if len(cases) <= limit:
        return RunSample(tuple(cases))
    groups = [
        ResponseStratum(
            name_outcome(case.verdict), get_response_group(case, "benchmark"), get_response_group(case, "model")
        )
        for case in cases
    ]
    stratum, strata = number_distinct_labels(groups)
    chosen = choose_responses(strata, stratum, hash_ids([case.response.id for case in cases]), limit).tolist()
    judged, listed = (
        Counter(group.outcome for group in part) for part in (groups, [groups[position] for position in chosen])
    )
    outcomes = {outcome: (listed[outcome], judged[outcome]) for outcome in OUTCOME_WORDS if judged[outcome]}
    return RunSample(tuple(cases[position] for position in chosen), len(cases) - len(chosen), outcomes)
