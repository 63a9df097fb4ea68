"""Counts and rates of judged responses: which are unreliable, how often, and how they fail.

The ``report`` package formats them. Insufficient evidence is a failure of retrieval, not of reasoning, so every rate is
also given separately for sufficient and for insufficient evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from eclose.diagnosis.label_table import LABEL_CODES, LabelTable, RequestedRate, TraceStratum, count_by_appearance
from eclose.diagnosis.run_counts import RunCounts
from eclose.errors import UserError
from eclose.metrics.rates import ABSTAINED_CODES, VERDICTS, Metric
from eclose.metrics.repeats import LabelFlipCounts
from eclose.metrics.summary import GroupRates, VerdictCounts, summarize_verdict_counts
from eclose.readers.judged_run import EvidenceSufficiency, JudgedCase
from eclose.readers.readings import ReadingKey
from eclose.stats.arrays import Codes, Indices
from eclose.values.judgment import (
    NEVER_ASKED_REASONS,
    NO_CLAIM_REASON,
    NO_TRACE_REASON,
    UNREAD_TRACES,
    Criterion,
    LocalFailure,
)
from eclose.values.model_family import same_model_family
from eclose.values.three_valued import Label
from eclose.values.verdict import AbstentionOutcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.verdict import Verdict

__all__ = [
    "Diagnosis",
    "EvidenceSufficiency",
    "JudgeVersusMatching",
    "JudgedCase",
    "TraceStratum",
    "diagnose_cases",
    "diagnose_labels",
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


_SINGLE_LABELS = {
    Metric.ACCURACY: Criterion.CORRECTNESS,
    Metric.COMPLETENESS_RATE: Criterion.COMPLETENESS,
    Metric.GAP_RISK: Criterion.CORRECTNESS,
}
"""Rates that are undefined without one label, among those that a judge may not be asked for."""


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
    """Responses without a single step, or without a step that claims anything: L, A, C and K have no label."""
    stratum: TraceStratum = TraceStratum.STATED
    """The stratum of all responses above."""
    apart: Mapping[TraceStratum, GroupRates] = field(default_factory=dict)
    """The responses of other strata, which no rate above counts."""
    readings: Mapping[ReadingKey, int] = field(default_factory=dict)
    """Responses of all strata by how they were read."""
    abstentions: Mapping[AbstentionOutcome, int] = field(default_factory=dict)
    """Responses that say that they found no answer, by whether they were right to; empty where none does."""
    requested: Mapping[str, RequestedRate] = field(default_factory=dict)
    """What judges gave on request, by column; empty where nothing was asked for."""
    abstained_joint: Mapping[tuple[Label, Label, Label], int] = field(default_factory=dict)
    """Those of the group of abstentions by their labels L, A and C; ``joint`` counts them too."""

    @property
    def prose_traces(self) -> int:
        """Responses whose steps are the sentences of their reply."""
        return sum(count for (_, origin, _), count in self.readings.items() if origin == TraceStratum.PROSE)

    @property
    def unread_traces(self) -> dict[str, int]:
        """Number of responses of which no trace, or not its end, is known, by reason."""
        reasons = {
            reason: self.unjudged[criterion][reason]
            for criterion, reason in UNREAD_TRACES
            if reason in self.unjudged.get(criterion, {})
        }
        # Labels that people gave may lack a reason where there is no trace.
        without = self.without_trace - reasons.get(NO_CLAIM_REASON, 0)
        return {NO_TRACE_REASON: without, **reasons} if without else reasons

    @property
    def overall(self) -> GroupRates:
        """Summary of all responses together."""
        return self.groups[0]

    @property
    def unasked(self) -> frozenset[Metric]:
        """Rates that no response has because their label was never requested, as without reference answers."""
        return frozenset(
            metric
            for metric, criterion in _SINGLE_LABELS.items()
            if sum(self.unjudged.get(criterion, {}).get(reason, 0) for reason in NEVER_ASKED_REASONS)
            == self.overall.responses
        )

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


def diagnose_cases(cases: Iterable[JudgedCase]) -> Diagnosis:
    """Count everything that a report shows."""
    counts = RunCounts.of(tuple(cases))
    return diagnose_labels(counts.labels, counts.whole)


def diagnose_labels(labels: LabelTable, whole: LabelTable | None = None) -> Diagnosis:
    """Return the rates and tables of judged responses of one stratum; ``whole`` holds those of all."""
    if not len(labels):
        raise UserError("there is no judged response to diagnose. Judge some first.")
    whole, (stratum,) = whole or labels, labels.divide_by_stratum()
    strata = whole.divide_by_stratum() if whole is not labels else {}
    counts = labels.count_verdicts()
    benchmarks, models = labels.group_by_benchmark(), labels.group_by_model()
    pairs = _summarize_pairs(counts, benchmarks, models)
    verdicts = counts.by_verdict()
    step_failures, failed_responses = labels.count_step_failures()
    return Diagnosis(
        judges=tuple(sorted(labels.list_judges())),
        groups=(summarize_verdict_counts((), counts), *pairs),
        by_model=_summarize_by(counts, models, 1, pairs),
        by_dataset=_summarize_by(counts, benchmarks, 0, pairs),
        by_evidence=_by_evidence(labels, counts),
        # The joint distribution of L, A and C (the paper's table of A.4).
        joint=_count_joint(labels.verdict),
        # Steps, not responses, are counted, as in A.4: a response with two unsound steps counts twice.
        local_failures=step_failures,
        local_failure_responses=failed_responses,
        matching=_matching(labels.verdict, labels.matched),
        alias_matching=_matching(labels.verdict, labels.matched_with_aliases),
        correct_but_insufficient=_count_labels(verdicts, correct=True, sufficient=False),
        incorrect_but_sufficient=_count_labels(verdicts, correct=False, sufficient=True),
        inconsistent=sum(count for verdict, count in verdicts.items() if verdict.inconsistent),
        unjudged=labels.count_unjudged(),
        flips=labels.count_flips(),
        # A judge may favour models of its own family.
        same_family_pairs=tuple(sorted(pair for pair in _list_judged_models(labels) if same_model_family(*pair))),
        without_trace=int(labels.without_trace.sum()),
        stratum=stratum,
        apart={
            other: summarize_verdict_counts((), whole.count_verdicts().select(rows))
            for other, rows in strata.items()
            if other is not stratum
        },
        readings=whole.count_readings(),
        abstentions=labels.count_abstentions(),
        requested=labels.summarize_requested(),
        abstained_joint={
            chain: count
            for chain, count in _count_joint(labels.verdict[labels.abstained]).items()
            # An unsound step decides the group, whatever the answer is.
            if chain[0] is not False
        },
    )


_Groups: TypeAlias = tuple[Sequence[str], Indices]
"""Names in alphabetical order, and the position in it of each response's name."""


def _summarize_pairs(counts: VerdictCounts, benchmarks: _Groups, models: _Groups) -> tuple[GroupRates, ...]:
    """Return a summary for each dataset and model that occur together, by name."""
    pair = benchmarks[1] * len(models[0]) + models[1]
    # Sorted once and cut into groups: a mask for every group would pass over all rows each time.
    order = np.argsort(pair, kind="stable")
    sizes = np.bincount(pair, minlength=1)
    summaries = []
    for number, rows in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
        if not len(rows):
            continue
        benchmark, model = divmod(number, len(models[0]))
        group = (benchmarks[0][benchmark], models[0][model])
        summaries.append(summarize_verdict_counts(group, counts.select(rows)))
    return tuple(summaries)


def _summarize_by(
    counts: VerdictCounts, groups: _Groups, position: int, pairs: Sequence[GroupRates]
) -> tuple[GroupRates, ...]:
    """Return each dataset over all models (position 0), or each model over all datasets (position 1).

    Empty where that repeats the groups.
    """
    names, group_of = groups
    # One value repeats all responses, and as many values as pairs repeat the pairs.
    if not 1 < len(names) < len(pairs):
        return ()
    summaries = []
    for number, name in enumerate(names):
        parts = [pair for pair in pairs if pair.group[position] == name]
        # A single pair is reused: the same responses must have the same interval in every table.
        if len(parts) == 1:
            summaries.append(replace(parts[0], group=(name,)))
        else:
            summaries.append(summarize_verdict_counts((name,), counts.select(group_of == number)))
    return tuple(summaries)


_EVIDENCE_CODES = {EvidenceSufficiency.of(label): code for label, code in LABEL_CODES.items()}


def _by_evidence(labels: LabelTable, counts: VerdictCounts) -> dict[EvidenceSufficiency, GroupRates]:
    return {
        kind: summarize_verdict_counts((), counts.select(rows))
        for kind in EvidenceSufficiency
        if (rows := np.equal(labels.evidence, _EVIDENCE_CODES[kind])).any()
    }


def _count_joint(verdicts: Codes) -> Counter[tuple[Label, Label, Label]]:
    """Count responses by L, A and C, in the order of their first appearance."""
    # K and Acc are the last two digits of a verdict's position.
    joint: Counter[tuple[Label, Label, Label]] = Counter()
    for code, count in count_by_appearance(verdicts % ABSTAINED_CODES // 9).items():
        verdict = VERDICTS[9 * code]
        joint[verdict.locally_sound, verdict.aligned, verdict.closed] = count
    return joint


def _list_judged_models(labels: LabelTable) -> list[tuple[str, str]]:
    """Return pairs of a judge and a model whose responses it judged."""
    pairs = np.unique(np.stack([labels.judge, labels.model], axis=1), axis=0).tolist()
    return [(labels.judges[judge], labels.models[model]) for judge, model in pairs if model >= 0]


def _matching(verdict: Codes, matched: Codes) -> JudgeVersusMatching:
    # Rows by correctness to the judge, columns by matching: unknown, false, true.
    # Acc is the last digit of a verdict's position.
    table = np.bincount((verdict % 3).astype(np.intp) * 3 + (matched + 1), minlength=9).reshape(3, 3).tolist()
    (_, _, _), (_, neither, matching_only), (_, judge_only, both) = table
    unknown = len(verdict) - both - judge_only - matching_only - neither
    return JudgeVersusMatching(both, judge_only, matching_only, neither, unknown)


def _count_labels(verdicts: Mapping[Verdict, int], *, correct: bool, sufficient: bool) -> int:
    return sum(
        count
        for verdict, count in verdicts.items()
        if verdict.correct is correct and verdict.globally_sufficient is sufficient
    )
