"""Counts and rates of judged responses: which are unreliable, how often, and how they fail.

The ``report`` package formats them. Insufficient evidence is a failure of retrieval, not of reasoning, so every rate is
also given separately for sufficient and for insufficient evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eclose.core.judgment import Criterion, Judgment, LocalFailure, missing_reason_kind
from eclose.core.model_family import same_model_family
from eclose.core.parse_trace import has_prose_trace
from eclose.core.three_valued import Label
from eclose.core.verdict import FailureClass, SettledVerdict, Verdict
from eclose.errors import UserError
from eclose.judged_cases import EvidenceSufficiency, JudgedCase
from eclose.metrics.repeat_consistency import LabelFlipCounts, count_label_flips
from eclose.metrics.summary import VERDICT_GROUPINGS, GroupRates, summarize_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Diagnosis",
    "EvidenceSufficiency",
    "JudgeVersusMatching",
    "JudgedCase",
    "describe_response_failure",
    "diagnose_cases",
]


@dataclass(frozen=True, slots=True)
class JudgeVersusMatching:
    """Correctness by the judge against correctness by string matching."""

    both: int
    judge_only: int
    """Correct by the judge without a match: a semantic equivalent, or a lenient judge."""
    matching_only: int
    neither: int
    unknown: int
    """Responses without a judgment or without a match to compare."""


@dataclass(frozen=True, slots=True)
class ViolatedLabelCounts:
    """Responses by the number of labels L, A and C that they violate."""

    none: int
    one: int
    several: int
    both_links: int
    """Responses that violate both global links, A and C, whatever L is."""
    unknown: int
    """Responses with one of the three labels missing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All counts and rates of a set of responses."""

    judges: tuple[str, ...]
    groups: tuple[GroupRates, ...]
    """All responses together, then by benchmark and model."""
    by_model: tuple[GroupRates, ...]
    """Each model over all datasets; empty where it would repeat ``groups``."""
    by_dataset: tuple[GroupRates, ...]
    """Each dataset over all models; empty where it would repeat ``groups``."""
    by_evidence: Mapping[EvidenceSufficiency, GroupRates]
    joint: Mapping[tuple[Label, Label, Label], int]
    """Responses by their labels L, A and C."""
    local_failures: Mapping[LocalFailure, int]
    """Unsound steps by failure code."""
    local_failure_responses: Mapping[LocalFailure, int]
    """Responses with an unsound step of each failure code; a response may have several codes."""
    matching: JudgeVersusMatching
    """Matching against the reference answer alone (D.5.3)."""
    alias_matching: JudgeVersusMatching
    """Matching against the reference answer and its aliases."""
    correct_but_insufficient: int
    incorrect_but_sufficient: int
    inconsistent: int
    """Responses that are reliable by every label, with a wrong answer."""
    unjudged: Mapping[Criterion, Mapping[str, int]]
    """Missing labels by criterion and reason."""
    flips: Mapping[str, LabelFlipCounts]
    """Consistency of the judge by criterion and for ``evidence``; empty where it was asked once."""
    same_family_pairs: tuple[tuple[str, str], ...]
    """Pairs of a judge and a model of the same family whose responses it judged."""
    without_trace: int = 0
    """Responses without a single step: L, A, C and K have no label."""
    prose_traces: int = 0
    """Responses whose steps are the sentences of their answer."""

    @property
    def overall(self) -> GroupRates:
        """Summary of all responses together."""
        return self.groups[0]

    @property
    def violations(self) -> ViolatedLabelCounts:
        """Responses by the number of violated labels among L, A and C (appendix A.4)."""
        broken: Counter[int | None] = Counter()
        for labels, count in self.joint.items():
            # A response with a missing label may violate more than is known, so it is counted apart.
            broken[None if None in labels else labels.count(False)] += count
        both = sum(count for labels, count in self.joint.items() if labels[1:] == (False, False))
        return ViolatedLabelCounts(broken[0], broken[1], broken[2] + broken[3], both, broken[None])

    @property
    def pairs(self) -> tuple[GroupRates, ...]:
        """Summaries by dataset and model."""
        return self.groups[1:]


def diagnose_cases(cases: Sequence[JudgedCase]) -> Diagnosis:
    """Count everything that a report shows."""
    if not cases:
        raise UserError("there is no judged response to diagnose. Judge some first.")
    # Verdict rows without texts: all that rates need.
    rows = [case.row for case in cases]
    groups = tuple(summarize_verdicts(rows, _PAIR))
    by_evidence = _by_evidence(cases)
    return Diagnosis(
        judges=tuple(sorted({case.judgment.judge for case in cases})),
        groups=groups,
        by_model=_summarize_by(rows, "model", groups[1:]),
        by_dataset=_summarize_by(rows, "benchmark", groups[1:]),
        by_evidence=by_evidence,
        # The joint distribution of L, A and C (the paper's table of A.4).
        joint=Counter((row.verdict.locally_sound, row.verdict.aligned, row.verdict.closed) for row in rows),
        local_failures=_local_failures(cases),
        local_failure_responses=_local_failure_responses(cases),
        matching=_matching((case.verdict.correct, case.matched) for case in cases),
        alias_matching=_matching((case.verdict.correct, case.matched_with_aliases) for case in cases),
        correct_but_insufficient=sum(_has_labels(row.verdict, correct=True, sufficient=False) for row in rows),
        incorrect_but_sufficient=sum(_has_labels(row.verdict, correct=False, sufficient=True) for row in rows),
        inconsistent=sum(row.verdict.inconsistent for row in rows),
        unjudged=_unjudged(cases),
        flips=count_label_flips(case.judgment for case in cases),
        same_family_pairs=_same_family_pairs(cases),
        without_trace=sum(not case.response.trace.steps for case in cases),
        prose_traces=sum(has_prose_trace(case.response) for case in cases),
    )


_PAIR = ("benchmark", "model")


def _summarize_by(rows: Sequence[SettledVerdict], name: str, pairs: Sequence[GroupRates]) -> tuple[GroupRates, ...]:
    """Return each model over all datasets, or each dataset over all models; empty where that repeats the groups."""
    position = _PAIR.index(name)
    values = sorted({pair.group[position] for pair in pairs})
    # One value repeats all responses, and as many values as pairs repeat the pairs.
    if not 1 < len(values) < len(pairs):
        return ()
    summaries = []
    for value in values:
        parts = [pair for pair in pairs if pair.group[position] == value]
        # A single pair is reused: the same responses must have the same interval in every table.
        if len(parts) == 1:
            summary = parts[0]
        else:
            members = [row for row in rows if VERDICT_GROUPINGS[name](row) == value]
            (summary,) = summarize_verdicts(members)
        summaries.append(replace(summary, group=(value,)))
    return tuple(summaries)


def _same_family_pairs(cases: Sequence[JudgedCase]) -> tuple[tuple[str, str], ...]:
    """Return judges with the models of their own family, by name; a judge may favour its family."""
    pairs = {(case.judgment.judge, case.response.source.model) for case in cases if case.response.source}
    return tuple(sorted((judge, model) for judge, model in pairs if same_model_family(judge, model)))


def _by_evidence(cases: Sequence[JudgedCase]) -> dict[EvidenceSufficiency, GroupRates]:
    """Return a summary for each kind of evidence that occurs."""
    summaries = {}
    for kind in EvidenceSufficiency:
        if rows := [case.row for case in cases if case.evidence is kind]:
            (summaries[kind],) = summarize_verdicts(rows)
    return summaries


def _local_failures(cases: Sequence[JudgedCase]) -> dict[LocalFailure, int]:
    # Steps, not responses, are counted, as in A.4: a response with two unsound steps counts twice.
    counts = Counter(step.failure for case in cases for step in case.judgment.steps)
    return {code: counts[code] for code in LocalFailure if counts[code]}


def _local_failure_responses(cases: Sequence[JudgedCase]) -> dict[LocalFailure, int]:
    counts = Counter(code for case in cases for code in {step.failure for step in case.judgment.steps})
    return {code: counts[code] for code in LocalFailure if counts[code]}


def _matching(labels: Iterable[tuple[Label, Label]]) -> JudgeVersusMatching:
    """Count pairs of correctness by the judge and by matching."""
    counts: Counter[tuple[Label, Label]] = Counter(labels)
    # Pairs of (judge, match); a None in either is unknown.
    both, judge_only = counts[True, True], counts[True, False]
    matching_only, neither = counts[False, True], counts[False, False]
    compared = both + judge_only + matching_only + neither
    return JudgeVersusMatching(both, judge_only, matching_only, neither, counts.total() - compared)


def _has_labels(verdict: Verdict, *, correct: bool, sufficient: bool) -> bool:
    return verdict.correct is correct and verdict.globally_sufficient is sufficient


def _unjudged(cases: Sequence[JudgedCase]) -> dict[Criterion, dict[str, int]]:
    """Count missing labels by criterion and kind of reason."""
    counts = Counter(
        (criterion, missing_reason_kind(reason))
        for case in cases
        for criterion, reason in case.judgment.unjudged.items()
    )
    reasons: dict[Criterion, dict[str, int]] = {}
    for (criterion, reason), count in sorted(counts.items()):
        reasons.setdefault(criterion, {})[reason] = count
    return reasons


_BROKEN = {
    FailureClass.PATH_DEVIATION: "The reasoning pursues something other than the question{pursued}.",
    FailureClass.INCOMPLETE_REASONING: (
        "The reasoning establishes neither the reference answer nor the submitted one{instead}."
    ),
    FailureClass.ANSWER_DECOUPLING: (
        "The reasoning establishes the reference answer{established}, and another answer was submitted."
    ),
    FailureClass.CLOSURE_FAILURE: "The reasoning does not establish the submitted answer{instead}.",
    FailureClass.UNDETERMINED: "The reasoning does not establish the submitted answer; what it pursues was not judged.",
}
"""Sentence for each failure class, with optional parts from the judgment."""


def describe_response_failure(case: JudgedCase) -> str:
    """Return a sentence or two on what is wrong with a response."""
    judgment, verdict = case.judgment, case.verdict
    sentences = []
    # Both sentences where both apply: a response may fail step by step and as a whole.
    if verdict.locally_sound is False:
        sentences.append(_unsound(judgment))
    if (failure := verdict.failure_class) is not None:
        sentences.append(
            _BROKEN[failure].format(
                pursued=f": {judgment.pursued.rstrip(' .')}" if judgment.pursued else "",
                established=f", “{judgment.established}”" if judgment.established else "",
                instead=f", but “{judgment.established}”" if judgment.established else "",
            )
        )
    if not sentences:
        sentences.append(
            "Every step holds, and so does the whole." if verdict.reliable else "Not everything was judged."
        )
    return " ".join(sentences)


def _unsound(judgment: Judgment) -> str:
    """Return the sentence that names the unsound steps."""
    if not judgment.stepwise:
        return "A step does not hold."
    # Steps are numbered from 1, as reports print them.
    numbers = [number for number, step in enumerate(judgment.steps, start=1) if step.sound is False]
    return f"Step {numbers[0]} does not hold." if len(numbers) == 1 else f"Steps {_join_numbers(numbers)} do not hold."


def _join_numbers(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
