"""Responses with their judgments -> which are unreliable, how often, and how.

Counts and rates only; what they look like is for ``report``. Evidence comes first: whether the passages settle a
question is not the reasoning's doing, so every rate is also given for sufficient and for insufficient evidence apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eclose.cases import Case, Evidence
from eclose.core.judgment import Criterion, Judgment, LocalFailure, reason_kind
from eclose.core.model_family import same_family
from eclose.core.three_valued import Label
from eclose.core.verdict import FailureClass, SettledVerdict, Verdict
from eclose.errors import UserError
from eclose.metrics.repeat_consistency import FlipCounts, count_flips
from eclose.metrics.summary import GROUPINGS, GroupSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Case", "Diagnosis", "Evidence", "Matching", "broken_link", "diagnose_cases"]


@dataclass(frozen=True, slots=True)
class Matching:
    """The judge's correctness beside plain matching."""

    both: int
    judge_only: int
    """Correct to the judge, no match: a semantic equivalent, or a lenient judge."""
    matching_only: int
    neither: int
    unknown: int
    """One of the two could not be had."""


@dataclass(frozen=True, slots=True)
class Violations:
    """Responses by how many of L, A and C they violate."""

    none: int
    one: int
    several: int
    both_links: int
    """Both global links, A and C, whatever L is."""
    unknown: int
    """One of the three has no label."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything there is to say of a set of responses."""

    judges: tuple[str, ...]
    groups: tuple[GroupSummary, ...]
    """All responses together, then by benchmark and model."""
    by_model: tuple[GroupSummary, ...]
    """Each model over all datasets; empty where the groups say the same already."""
    by_dataset: tuple[GroupSummary, ...]
    """Each dataset over all models; empty where the groups say the same already."""
    by_evidence: Mapping[Evidence, GroupSummary]
    joint: Mapping[tuple[Label, Label, Label], int]
    """How many have which labels L, A and C."""
    local_failures: Mapping[LocalFailure, int]
    """Unsound steps by their code."""
    matching: Matching
    """Against the reference alone, as D.5.3 has it."""
    alias_matching: Matching
    """Against the reference and its aliases."""
    correct_but_insufficient: int
    incorrect_but_sufficient: int
    inconsistent: int
    """Reliable by every label and yet wrong: worth another look."""
    unjudged: Mapping[Criterion, Mapping[str, int]]
    """Why criteria have no label, by reason."""
    flips: Mapping[str, FlipCounts]
    """How steady the judge is, by criterion and ``evidence``; empty where it was asked everything once."""
    kin: tuple[tuple[str, str], ...]
    """Judges with the models of their own family whose responses they judged."""

    @property
    def overall(self) -> GroupSummary:
        """All responses together."""
        return self.groups[0]

    @property
    def violations(self) -> Violations:
        """How many of L, A and C the responses violate (appendix A.4)."""
        broken: Counter[int | None] = Counter()
        for labels, count in self.joint.items():
            broken[None if None in labels else labels.count(False)] += count
        both = sum(count for labels, count in self.joint.items() if labels[1:] == (False, False))
        return Violations(broken[0], broken[1], broken[2] + broken[3], both, broken[None])

    @property
    def pairs(self) -> tuple[GroupSummary, ...]:
        """By dataset and model."""
        return self.groups[1:]


def diagnose_cases(cases: Sequence[Case]) -> Diagnosis:
    """Count everything."""
    if not cases:
        raise UserError("there is no judged response to diagnose. Judge some first.")
    rows = [case.row for case in cases]
    groups = tuple(summarize(rows, _PAIR))
    by_evidence = _by_evidence(cases)
    return Diagnosis(
        judges=tuple(sorted({case.judgment.judge for case in cases})),
        groups=groups,
        by_model=_by(rows, "model", groups[1:]),
        by_dataset=_by(rows, "benchmark", groups[1:]),
        by_evidence=by_evidence,
        joint=Counter((row.verdict.locally_sound, row.verdict.aligned, row.verdict.closed) for row in rows),
        local_failures=_local_failures(cases),
        matching=_matching((case.verdict.correct, case.matched) for case in cases),
        alias_matching=_matching((case.verdict.correct, case.matched_with_aliases) for case in cases),
        correct_but_insufficient=sum(_is(row.verdict, correct=True, sufficient=False) for row in rows),
        incorrect_but_sufficient=sum(_is(row.verdict, correct=False, sufficient=True) for row in rows),
        inconsistent=sum(row.verdict.inconsistent for row in rows),
        unjudged=_unjudged(cases),
        flips=count_flips(case.judgment for case in cases),
        kin=_kin(cases),
    )


_PAIR = ("benchmark", "model")


def _by(rows: Sequence[SettledVerdict], name: str, pairs: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    """Each model over all datasets, or the other way round; nothing where these are the pairs, or all responses."""
    place = _PAIR.index(name)
    values = sorted({pair.group[place] for pair in pairs})
    if not 1 < len(values) < len(pairs):
        return ()
    found = []
    for value in values:
        parts = [pair for pair in pairs if pair.group[place] == value]
        if len(parts) == 1:  # the same responses have the same interval, wherever it is told
            one = parts[0]
        else:
            members = [row for row in rows if GROUPINGS[name](row) == value]
            (one,) = summarize(members)
        found.append(replace(one, group=(value,)))
    return tuple(found)


def _kin(cases: Sequence[Case]) -> tuple[tuple[str, str], ...]:
    """Whoever judges its own family, by the names: a judge may be kind to its kin."""
    met = {(case.judgment.judge, case.response.source.model) for case in cases if case.response.source}
    return tuple(sorted((judge, model) for judge, model in met if same_family(judge, model)))


def _by_evidence(cases: Sequence[Case]) -> dict[Evidence, GroupSummary]:
    found = {}
    for kind in Evidence:
        if rows := [case.row for case in cases if case.evidence is kind]:
            (found[kind],) = summarize(rows)
    return found


def _local_failures(cases: Sequence[Case]) -> dict[LocalFailure, int]:
    counts = Counter(step.failure for case in cases for step in case.judgment.steps)
    return {code: counts[code] for code in LocalFailure if counts[code]}


def _matching(labels: Iterable[tuple[Label, Label]]) -> Matching:
    """Count pairs of the judge's correctness and the match."""
    counts: Counter[tuple[Label, Label]] = Counter(labels)
    both, judge_only = counts[True, True], counts[True, False]
    matching_only, neither = counts[False, True], counts[False, False]
    known = both + judge_only + matching_only + neither
    return Matching(both, judge_only, matching_only, neither, counts.total() - known)


def _is(verdict: Verdict, *, correct: bool, sufficient: bool) -> bool:
    return verdict.correct is correct and verdict.globally_sufficient is sufficient


def _unjudged(cases: Sequence[Case]) -> dict[Criterion, dict[str, int]]:
    """Count missing labels by criterion and kind of reason."""
    counts = Counter(
        (criterion, reason_kind(reason)) for case in cases for criterion, reason in case.judgment.unjudged.items()
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


def broken_link(case: Case) -> str:
    """What is wrong with a response, in a sentence or two."""
    judgment, verdict = case.judgment, case.verdict
    told = []
    if verdict.locally_sound is False:
        told.append(_unsound(judgment))
    if (failure := verdict.failure_class) is not None:
        told.append(
            _BROKEN[failure].format(
                pursued=f": {judgment.pursued.rstrip(' .')}" if judgment.pursued else "",
                established=f", “{judgment.established}”" if judgment.established else "",
                instead=f", but “{judgment.established}”" if judgment.established else "",
            )
        )
    if not told:
        told.append("Every step holds, and so does the whole." if verdict.reliable else "Not everything was judged.")
    return " ".join(told)


def _unsound(judgment: Judgment) -> str:
    if not judgment.stepwise:
        return "A step does not hold."
    numbers = [number for number, step in enumerate(judgment.steps, start=1) if step.sound is False]
    return f"Step {numbers[0]} does not hold." if len(numbers) == 1 else f"Steps {_listed(numbers)} do not hold."


def _listed(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
