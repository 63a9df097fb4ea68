"""Scores of detectors on the report's page: columns of the list, a filter, and a plot of every group of responses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from eclose.core.verdict import TraceGroup
from eclose.diagnosis.report.number_format import DASH, format_score
from eclose.diagnosis.report.scores.names import name_detectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.diagnosis.diagnose import JudgedCase
    from eclose.diagnosis.report.scores.columns import ScoreColumn

SCORE_BINS = 20
"""Bars of a histogram; each is 0.05 wide."""
_DECIMALS = 4
_GROUPS: tuple[tuple[str, str, TraceGroup | None], ...] = (
    ("reliable", "reliable", TraceGroup.RELIABLE),
    ("gap", "in the gap", TraceGroup.GAP),
    ("unsound", "unsound step", TraceGroup.LOCALLY_UNSOUND),
    ("undecided", "undecided", None),
)
"""Name in links, words and group of every column of the plot."""


def name_score_columns(columns: Sequence[ScoreColumn]) -> list[str]:
    """Return a name for each column; where two files hold the same detector, the file is part of it."""
    names = name_detectors(list(dict.fromkeys(column.detector for column in columns)))
    repeated = Counter(column.detector for column in columns)
    return [
        f"{names[column.detector]} ({column.file})" if repeated[column.detector] > 1 else names[column.detector]
        for column in columns
    ]


def _list_keys(columns: Sequence[ScoreColumn]) -> list[str]:
    """Return the names of the columns in links: ``ragas``, or ``ragas-2`` for a second one."""
    number: Counter[str] = Counter()
    keys = []
    for column in columns:
        number[column.detector.kind] += 1
        count = number[column.detector.kind]
        keys.append(str(column.detector.kind) if count == 1 else f"{column.detector.kind}-{count}")
    return keys


def build_score_entries(columns: Sequence[ScoreColumn], ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns of the explorer's index: for each response a number, or the reason as a text."""
    return [
        {
            "key": key,
            "name": name,
            "model": column.detector.model,
            "column": [_shorten(column.get_value(response_id)) for response_id in ids],
        }
        for key, name, column in zip(_list_keys(columns), name_score_columns(columns), columns, strict=True)
    ]


def _shorten(value: float | str) -> float | str:
    return value if isinstance(value, str) else round(value, _DECIMALS)


def build_unscored_facet(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the filter of responses without a score, by detector and by reason; None where every one has a score."""
    rows = list(zip(*(entry["column"] for entry in entries), strict=True))
    reasons = sorted({value for row in rows for value in row if isinstance(value, str)})
    if not reasons:
        return None
    options = [("any", "by any detector")]
    options += [(entry["key"], f"by {entry['name']}") for entry in entries]
    options += [(f"because-{reason.replace(' ', '-')}", f"because: {reason}") for reason in reasons]
    bits = [sum(1 << bit for bit in _list_unscored_bits(row, reasons)) for row in rows]
    used = [bit for bit in range(len(options)) if any(value >> bit & 1 for value in bits)]
    return {
        "name": "unscored",
        "label": "Without a score",
        "options": [[*options[bit], 1 << bit] for bit in used],
        "column": bits,
    }


def _list_unscored_bits(row: Sequence[float | str], reasons: Sequence[str]) -> set[int]:
    """Return the options that hold for a response: any detector, then each detector, then each reason."""
    missing = {number: value for number, value in enumerate(row) if isinstance(value, str)}
    by_detector = {1 + number for number in missing}
    by_reason = {1 + len(row) + reasons.index(reason) for reason in missing.values()}
    return {0, *by_detector, *by_reason} if missing else set()


@dataclass(frozen=True, slots=True)
class ScoreHistogram:
    """Scores of one detector in one group of responses."""

    kind: str
    name: str
    show: str
    """Link to these responses, lowest score first."""
    bars: tuple[tuple[float, float], ...]
    """Start of each bar in percent of the width, and its height in percent of the tallest of the detector."""
    mean: float | None
    """Mean score in percent of the width; None without a score."""
    scored: int
    unscored: int

    @property
    def mean_text(self) -> str:
        """The mean as text."""
        return DASH if self.mean is None else format_score(self.mean / 100)


@dataclass(frozen=True, slots=True)
class ScorePlotRow:
    """Histograms of one detector, a group beside the other."""

    name: str
    model: str
    groups: tuple[ScoreHistogram, ...]


def layout_score_plot(columns: Sequence[ScoreColumn], cases: Sequence[JudgedCase]) -> tuple[ScorePlotRow, ...]:
    """Return the histograms of all detectors. Heights are shares of a group, so large and small groups compare."""
    return tuple(
        ScorePlotRow(name, column.detector.model, tuple(_layout_groups(column, key, cases)))
        for key, name, column in zip(_list_keys(columns), name_score_columns(columns), columns, strict=True)
    )


def _layout_groups(column: ScoreColumn, key: str, cases: Sequence[JudgedCase]) -> Iterator[ScoreHistogram]:
    values = {
        kind: [column.get_value(case.response.id) for case in cases if case.verdict.trace_group is group]
        for kind, _, group in _GROUPS
    }
    scores = {kind: [value for value in row if not isinstance(value, str)] for kind, row in values.items()}
    # A score of 1 belongs to the last bar.
    bins = {
        kind: Counter(min(int(score * SCORE_BINS), SCORE_BINS - 1) for score in row) for kind, row in scores.items()
    }
    shares = {kind: {index: count / len(scores[kind]) for index, count in row.items()} for kind, row in bins.items()}
    tallest = max((share for row in shares.values() for share in row.values()), default=1.0)
    for kind, name, _ in _GROUPS:
        if not values[kind]:
            continue
        bars = ((100 * index / SCORE_BINS, 100 * share / tallest) for index, share in sorted(shares[kind].items()))
        yield ScoreHistogram(
            kind=kind,
            name=name,
            show=f"outcome={kind}&sort=low-{key}",
            bars=tuple((round(start, 2), round(height, 2)) for start, height in bars),
            mean=round(100 * fmean(scores[kind]), 3) if scores[kind] else None,
            scored=len(scores[kind]),
            unscored=len(values[kind]) - len(scores[kind]),
        )
