"""Report of a judge on real responses, in tables and in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.cli.shared.output import format_percent, format_percent_interval, print_table
from eclose.files.manifest import Manifest
from eclose.files.run_folder import VALIDATION_FILE
from eclose.judging.validation_file import ValidationRecord, build_validation, write_validation
from eclose.metrics.judge_against_people import DIRECT_LABELS, LABEL_METRICS, JudgedLabel, LabelAgreementRow
from eclose.values.judgment import Criterion, Judgment
from eclose.values.verdict import Verdict

from .labelled_response import LabelledResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HUMAN, BROKEN, ROSCOE = "human", "broken", "roscoe"
SEED = 20_261
CHANCE = 0.025
"""Significance level of "better than chance"."""
SHUFFLES = 400
TOLERATED = 0.05
"""Largest share of shuffles called better than chance; the nominal rate is half of it."""


@dataclass(frozen=True)
class JudgedSet:
    """Set of responses with the judge's judgments."""

    name: str
    folder: Path
    chosen: list[LabelledResponse]
    judgments: list[Judgment]
    manifest: Manifest

    @property
    def accounted(self) -> bool:
        """Whether every response was judged or set aside with a reason, and every criterion has a label or a reason."""
        counts = self.manifest.counts
        explained = all(_labels_or_reasons(judgment) for judgment in self.judgments)
        return counts.conserved and counts.received == len(self.chosen) and explained


def _labels_or_reasons(judgment: Judgment) -> bool:
    return all(
        (LABEL_METRICS[label].hit(judgment.verdict) is None) == (Criterion(label) in judgment.unjudged)
        for label in DIRECT_LABELS
    )


@dataclass(frozen=True)
class Table:
    """Contingency table of failures and passes, as labelled and as judged."""

    caught: int
    missed: int
    false_alarms: int
    passed: int

    @classmethod
    def of(cls, truth: Sequence[bool], judged: Sequence[bool]) -> Table:
        pairs = Counter(zip(truth, judged, strict=True))
        return cls(pairs[False, False], pairs[False, True], pairs[True, False], pairs[True, True])

    @property
    def chance(self) -> float:
        """Probability that a judge at chance finds at least as many failures (Fisher's exact test)."""
        failures, called = self.caught + self.missed, self.caught + self.false_alarms
        everything = failures + self.false_alarms + self.passed
        ways = (
            comb(failures, hit) * comb(everything - failures, called - hit) for hit in range(self.caught, called + 1)
        )
        return sum(ways) / comb(everything, called)

    @property
    def words(self) -> str:
        if self.caught + self.missed == 0 or self.false_alarms + self.passed == 0:
            return (
                "nothing to tell apart" if self.caught + self.missed + self.false_alarms + self.passed else "unjudged"
            )
        if self.chance <= CHANCE:
            return "better than chance"
        turned = Table(self.missed, self.caught, self.passed, self.false_alarms)
        return "worse than chance" if turned.chance <= CHANCE else "not told from chance"


def report(judged: Sequence[JudgedSet]) -> dict[str, Any]:
    """Print all tables and return the fields of the result line."""
    traces = [judged_set for judged_set in judged if judged_set.name in (HUMAN, BROKEN)]
    pooled = _validation(traces)
    if pooled is not None:
        _say(pooled, "people's traces, as written and broken")
    for judged_set in judged:
        validation = _validation([judged_set])
        if validation is not None:
            write_validation(judged_set.folder / VALIDATION_FILE, validation)
            _say(validation, judged_set.name)
        _say_groups(judged_set)
    _say_unjudged(judged)
    rates = [
        _shuffled(list(part)) for part in (traces, [judged_set for judged_set in judged if judged_set.name == ROSCOE])
    ]
    called, tried = (sum(column) for column in zip(*rates, strict=True))
    accounted = all(judged_set.accounted for judged_set in judged)
    print(f"\nevery response accounted for: {'yes' if accounted else 'NO'}")
    print(f"verdicts dealt out at random, called better than chance: {called} of {tried}")
    answered = any(judged_set.judgments for judged_set in judged)
    return _figure(pooled, answered and accounted and called <= TOLERATED * tried)


def _figure(pooled: ValidationRecord | None, holds: bool) -> dict[str, Any]:
    rows = [] if pooled is None else [pooled.overall.rows[label] for label in DIRECT_LABELS]
    values = [row.scores.balanced_accuracy.value for row in rows]
    defined = [value for value in values if value is not None]
    judge = "nobody" if pooled is None else pooled.judge
    return {
        "name": f"mean balanced accuracy of {judge} over {len(defined)} criteria, people's traces",
        "value": round(sum(defined) / len(defined), 3) if defined else None,
        "unit": "share",
        "goal": "none for the judge; every response accounted for, and verdicts dealt out at random called better "
        f"than chance in at most {TOLERATED:.0%} of cases",
        "holds": holds,
    }


def _validation(judged: Iterable[JudgedSet]) -> ValidationRecord | None:
    """Validate the judge against the labels; return None where it judged nothing."""
    listed = list(judged)
    judgments = [judgment for judged_set in listed for judgment in judged_set.judgments]
    if not judgments:
        return None
    chosen = list(chain.from_iterable(judged_set.chosen for judged_set in listed))
    return build_validation(
        judgments,
        [case.settled for case in chosen],
        [case.response for case in chosen],
        settings=listed[0].manifest.settings,
        rng=np.random.default_rng(SEED),
    )


def _say(validation: ValidationRecord, name: str) -> None:
    head = ("label", "judged", "agreement", "balanced", "kappa", "found", "missed", "false alarms", "in words")
    rows = [_row(row) for row in validation.overall.rows.values()]
    print_table(f"{validation.judge} on {name}: {validation.labelled} responses, in percent", head, rows)


def _row(row: LabelAgreementRow) -> tuple[str, ...]:
    scores, balanced = row.scores, row.scores.balanced_accuracy
    table = Table(row.found, row.misses, row.false_alarms, row.n - row.found - row.misses - row.false_alarms)
    return (
        str(row.label),
        f"{row.n} of {row.labelled}",
        f"{format_percent(scores.agreement.value)} [{format_percent_interval(scores.agreement.interval)}]",
        f"{format_percent(balanced.value)} [{format_percent_interval(balanced.interval)}]",
        format_percent(scores.kappa.value),
        str(row.found),
        str(row.misses),
        str(row.false_alarms),
        table.words if row.labelled else "no labels",
    )


def _say_groups(judged_set: JudgedSet) -> None:
    """Print for each group how many responses are labelled, judged, and judged as labelled."""
    verdicts = {judgment.response_id: judgment.verdict for judgment in judged_set.judgments}
    rows = []
    for group in sorted({case.group for case in judged_set.chosen}):
        members = [case for case in judged_set.chosen if case.group == group]
        cells = [_cell(label, members, verdicts) for label in DIRECT_LABELS]
        rows.append((group, str(len(members)), *cells))
    print_table(
        f"{judged_set.name}: agrees / judged / labelled", ("group", "responses", *map(str, DIRECT_LABELS)), rows
    )


def _cell(label: JudgedLabel, members: Sequence[LabelledResponse], verdicts: Mapping[str, Verdict]) -> str:
    pairs = [
        (LABEL_METRICS[label].hit(case.verdict), LABEL_METRICS[label].hit(verdicts.get(case.response.id, Verdict())))
        for case in members
    ]
    labelled = [(truth, answer) for truth, answer in pairs if truth is not None]
    judged = [truth == answer for truth, answer in labelled if answer is not None]
    return f"{sum(judged)} / {len(judged)} / {len(labelled)}" if labelled else "-"


def _say_unjudged(judged: Sequence[JudgedSet]) -> None:
    rows: list[tuple[str, ...]] = []
    for judged_set in judged:
        reasons = Counter(
            (str(label), reason) for judgment in judged_set.judgments for label, reason in judgment.unjudged.items()
        )
        for (label, reason), count in sorted(reasons.items()):
            rows.append((judged_set.name, label, reason, f"{count} of {len(judged_set.judgments)}"))
        aside = {**judged_set.manifest.counts.quarantined, **judged_set.manifest.counts.rejected}
        for reason, count in sorted(aside.items()):
            rows.append((judged_set.name, "whole response", reason, f"{count} of {len(judged_set.chosen)}"))
    print_table("Not judged, and why", ("set", "criterion", "reason", "responses"), rows)


def _shuffled(judged: Sequence[JudgedSet]) -> tuple[int, int]:
    """Count how often the judge's labels, shuffled among the responses, are called better than chance."""
    verdicts = {judgment.response_id: judgment.verdict for judged_set in judged for judgment in judged_set.judgments}
    cases = [case for judged_set in judged for case in judged_set.chosen if case.response.id in verdicts]
    rng, called, tried = np.random.default_rng(SEED), 0, 0
    for label in DIRECT_LABELS:
        pairs = [
            (LABEL_METRICS[label].hit(case.verdict), LABEL_METRICS[label].hit(verdicts[case.response.id]))
            for case in cases
        ]
        both = [(truth, answer) for truth, answer in pairs if truth is not None and answer is not None]
        if len({truth for truth, _ in both}) < 2:
            continue
        truth, answer = zip(*both, strict=True)
        for _ in range(SHUFFLES):
            table = Table.of(truth, [answer[index] for index in rng.permutation(len(answer))])
            called += table.words == "better than chance"
            tried += 1
    return called, tried
