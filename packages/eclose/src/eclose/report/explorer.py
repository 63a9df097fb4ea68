"""The list of responses on the page: its filters, and which responses of a large run it holds.

All logic is here: the page only compares numbers. The page of a small run lists every response. From
``MAX_PAGE_RESPONSES`` on it would be too large to open quickly, so it lists a sample and says so: failures first,
spread over models, datasets and kinds of failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.diagnosis.compare import CHAIN_CRITERIA, GROUP_NAMES, RESPONSE_CLASSES, ResponseClass, name_outcome
from eclose.diagnosis.diagnose import EvidenceSufficiency, JudgedCase
from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.files.record_file import hash_ids
from eclose.metrics.summary import VERDICT_GROUPINGS
from eclose.report.wording import CODE_WORDS, CRITERION_WORDS, FAILURE_WORDS
from eclose.stats.arrays import number_distinct_labels
from eclose.values.judgment import Criterion, Judgment, LocalFailure
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.three_valued import Label


class ResponseFacts(NamedTuple):
    """A response with the values derived from its labels."""

    case: JudgedCase
    verdict: Verdict
    outcome: str
    before: str = ""
    """Class of its partner in a base run, as ``name_response_class`` names it; empty without a base run."""


def derive_response_facts(case: JudgedCase, before: str = "") -> ResponseFacts:
    """Derive what the filters need from the labels of a response."""
    verdict = case.verdict
    return ResponseFacts(case, verdict, name_outcome(verdict), before)


OUTCOME_WORDS: Mapping[str, str] = {
    "reliable": "reliable",
    **{f"gap_{failure}": FAILURE_WORDS[failure][0] for failure in FailureClass},
    "unsound": "unsound step",
    **{f"undecided_{criterion.value}": f"undecided: {criterion.value} not judged" for criterion in CHAIN_CRITERIA},
    "abstained": "no answer found",
}
"""Every outcome with its short description, from reliable to undecided, then abstentions."""

NO_PARTNER = "none"
"""Class name for a response without a partner in the base run."""


def name_response_class(response_class: ResponseClass) -> str:
    """Return the name of a class in links: that of the outcome, with one name for all undecided ones."""
    if response_class is None:
        return "undecided"
    if isinstance(response_class, FailureClass):
        return f"gap_{response_class}"
    return GROUP_NAMES[response_class]


def describe_response_class(response_class: ResponseClass) -> str:
    """Return the description of a class."""
    return "undecided" if response_class is None else OUTCOME_WORDS[name_response_class(response_class)]


@dataclass(frozen=True, slots=True)
class ExplorerFacet:
    """A filter with a few options, of which several may hold for a response: one bit each."""

    name: str
    label: str
    options: Mapping[str, str]
    """Label of each option by its name in links, which is what lets the order of the bits change."""
    list_held: Callable[[ResponseFacts], Collection[str]]
    """Returns the names of the options that hold for a response."""

    def bits(self, facts: ResponseFacts) -> int:
        """Return the options that hold for a response, as bits."""
        # The page compares bits and knows no definitions, so it cannot disagree with the tables (decision 0022).
        held = self.list_held(facts)
        return sum(1 << bit for bit, option in enumerate(self.options) if option in held)


def _list_outcomes(facts: ResponseFacts) -> list[str]:
    group = facts.verdict.trace_group
    kinds = ["gap"] if group is TraceGroup.GAP else ["undecided"] if group is None else []
    return [facts.outcome, *kinds]


def _list_changes(facts: ResponseFacts) -> list[str]:
    # Whichever label is missing, undecided is one class.
    here = "undecided" if facts.outcome.startswith("undecided_") else facts.outcome
    return [facts.before, *(["changed"] if facts.before not in ("", NO_PARTNER, here) else [])]


def _list_answers(facts: ResponseFacts) -> list[str]:
    correct = {True: "correct", False: "wrong", None: "unjudged"}[facts.verdict.correct]
    return [correct, *(["none"] if facts.case.response.answer is None else [])]


def _list_unjudged(facts: ResponseFacts) -> list[str]:
    verdict = facts.verdict
    # In the order of Criterion.
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    names = [criterion.value for criterion, label in zip(Criterion, labels, strict=True) if label is None]
    return ["any", *names] if names else []


def _list_looks(facts: ResponseFacts) -> list[str]:
    verdict, response, judgment = facts.verdict, facts.case.response, facts.case.judgment
    matched, correct = facts.case.matched, verdict.correct
    looks = {
        "inconsistent": verdict.inconsistent,
        # An unknown side is not a disagreement.
        "disagree": matched is not None and correct is not None and matched is not correct,
        "lucky": correct is True and verdict.globally_sufficient is False,
        "flipped": bool(find_split_judge_votes(judgment)),
        "steps": not any(step.substantive for step in judgment.steps),
        "lines": response.answer_lines > 1,
        "cut": response.cut_off,
    }
    return [name for name, holds in looks.items() if holds]


def find_split_judge_votes(judgment: Judgment) -> dict[str, tuple[Label, ...]]:
    """Return the votes of a judge asked several times, for labels on which it gave both answers."""
    return {name: votes for name, votes in judgment.votes.items() if {True, False} <= set(votes)}


def _describe_before(response_class: ResponseClass) -> str:
    words = describe_response_class(response_class)
    return f"in the gap: {words}" if isinstance(response_class, FailureClass) else words


EXPLORER_FACETS: tuple[ExplorerFacet, ...] = (
    ExplorerFacet("outcome", "Outcome", {
        "reliable": "reliable",
        "gap": "in the gap, any kind",
        **{f"gap_{failure}": f"in the gap: {FAILURE_WORDS[failure][0]}" for failure in FailureClass},
        "unsound": "an unsound step",
        "undecided": "undecided, any reason",
        **{f"undecided_{label.value}": f"undecided: {label.value} not judged" for label in CHAIN_CRITERIA},
        "abstained": "no answer found, and no unsound step",
    }, _list_outcomes),
    ExplorerFacet("before", "In the other run", {
        "changed": "another class than here",
        **{name_response_class(each): _describe_before(each) for each in RESPONSE_CLASSES},
        NO_PARTNER: "no partner",
    }, _list_changes),
    ExplorerFacet("link", "First broken link", {str(failure): FAILURE_WORDS[failure][0] for failure in FailureClass},
                  lambda facts: [str(facts.verdict.failure_class)]),
    ExplorerFacet("code", "Unsound step", {code.value: f"{code.value} {CODE_WORDS[code][0]}" for code in LocalFailure},
                  lambda facts: {step.failure.value for step in facts.case.judgment.steps if step.failure}),
    ExplorerFacet("evidence", "Evidence", {str(kind): str(kind) for kind in EvidenceSufficiency},
                  lambda facts: [str(facts.case.evidence)]),
    ExplorerFacet("answer", "Answer", {
        "correct": "correct", "wrong": "wrong", "unjudged": "not judged", "none": "none submitted",
    }, _list_answers),
    ExplorerFacet("unjudged", "Not judged", {
        "any": "anything",
        **{criterion.value: f"{criterion.value}: {CRITERION_WORDS[criterion]}" for criterion in Criterion},
    }, _list_unjudged),
    ExplorerFacet("look", "Worth a look", {
        "inconsistent": "everything holds, yet wrong",
        "disagree": "judge and matching disagree",
        "lucky": "correct, though the whole fails",
        "flipped": "the judge gave both answers",
        "steps": "no substantive step",
        "lines": "several answer lines",
        "cut": "cut off",
    }, _list_looks),
)  # fmt: skip


def get_response_group(case: JudgedCase, by: str) -> str:
    """Return the dataset or model of a response, as the tables name it."""
    return VERDICT_GROUPINGS[by](case.row)


def build_facet_columns(responses: Sequence[ResponseFacts]) -> list[dict[str, Any]]:
    """Return each facet with its options and a number for each response; facets without a response are left out."""
    entries: list[dict[str, Any]] = []
    for facet in EXPLORER_FACETS:
        column = [facet.bits(facts) for facts in responses]
        used = reduce(or_, column, 0)
        # Options without any response would only lengthen the menu.
        options = [[*option, 1 << bit] for bit, option in enumerate(facet.options.items()) if used >> bit & 1]
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
        ResponseStratum(name_outcome(case.verdict), *(get_response_group(case, by) for by in ("benchmark", "model")))
        for case in cases
    ]
    stratum, strata = number_distinct_labels(groups)
    chosen = choose_responses(strata, stratum, hash_ids([case.response.id for case in cases]), limit).tolist()
    judged, listed = (
        Counter(group.outcome for group in part) for part in (groups, [groups[position] for position in chosen])
    )
    outcomes = {outcome: (listed[outcome], judged[outcome]) for outcome in OUTCOME_WORDS if judged[outcome]}
    return RunSample(tuple(cases[position] for position in chosen), len(cases) - len(chosen), outcomes)
