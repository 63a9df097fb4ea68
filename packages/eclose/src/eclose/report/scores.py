"""Scores of detectors beside judged responses: one column for each detector, with a reason where there is no score.

The page shows them as columns of the list, as a filter, and as a plot of every group of responses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from eclose.detectors.joined import NO_RECORD
from eclose.detectors.scores import DetectorKind, DetectorScore, list_score_files
from eclose.detectors.study_statistics import DetectorIdentity
from eclose.diagnosis.number_format import DASH, format_score
from eclose.files.jsonl import DUPLICATE, ID_REUSED, scan_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.verify import check_result_provenance
from eclose.readers.judged_run import RejectCounts, name_run_folders
from eclose.values.verdict import TraceGroup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose.diagnosis.diagnose import JudgedCase

SCORE_BINS = 20
"""Bars of a histogram; each is 0.05 wide."""
_DECIMALS = 4
UNKNOWN_RESPONSE = "no such response"
"""Reason of a score about a response that the report does not show."""


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """What one detector gave each response, from one file of scores or from the files of that name in several runs."""

    detector: DetectorIdentity
    file: str
    scores: dict[str, float] = field(default_factory=dict)
    """Scores by response id; low ones mean failure."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a response has no score, by its id."""

    def get_value(self, response_id: str) -> float | str:
        """Return the score of a response, or the reason why it has none."""
        score = self.scores.get(response_id)
        return self.reasons.get(response_id, NO_RECORD) if score is None else score


def read_score_columns(
    runs: Sequence[Path], ids: Collection[str], *, allow_stale: bool = False
) -> tuple[tuple[ScoreColumn, ...], tuple[str, ...], RejectCounts]:
    """Read every ``scores-*.jsonl`` of runs.

    A file that was made from other questions or responses is left out with a notice: the report of the judgments must
    not depend on it.

    Args:
        runs: Folders of runs.
        ids: Ids of the responses in the report; with the name of the run in front where two runs share an id.
        allow_stale: Whether files that were made from other responses are shown.

    Returns:
        The columns, a sentence for each stale file, and the number of unused records by file and reason.
    """
    known_ids = frozenset(ids)
    columns: dict[tuple[str, DetectorIdentity], ScoreColumn] = {}
    notices: list[str] = []
    rejected: dict[str, Mapping[str, int]] = {}
    for name, run in zip(name_run_folders(runs), runs, strict=True):
        for path in list_score_files(run):
            label = f"{name}/{path.name}" if len(runs) > 1 else path.name
            check = check_result_provenance(path, (run / INSTANCES_FILE, run / RESPONSES_FILE))
            if check.stale:
                consequence = "Its scores are shown all the same." if allow_stale else "Its scores are not shown."
                notices.append(f"STALE: {label}: {' '.join(check.stale)} {consequence} Score the responses again.")
            if not check.stale or allow_stale:
                rejected[label] = _add_file(columns, path, name, known_ids)
    return tuple(columns.values()), tuple(notices), {file: counts for file, counts in rejected.items() if counts}


def _add_file(
    columns: dict[tuple[str, DetectorIdentity], ScoreColumn], path: Path, run: str, known_ids: frozenset[str]
) -> Counter[str]:
    """Add the records of a file to the columns of its detectors; return the number of unused records by reason."""
    rejected: Counter[str] = Counter()
    for record in scan_records(path, DetectorScore):
        if (score := record.value) is None:
            rejected[record.error_kind] += 1
            continue
        response_id = score.response_id if score.response_id in known_ids else f"{run}/{score.response_id}"
        if response_id not in known_ids:
            rejected[UNKNOWN_RESPONSE] += 1
            continue
        detector = DetectorIdentity(score.detector, score.model)
        column = columns.setdefault((path.name, detector), ScoreColumn(detector, path.name))
        value = str(score.unscored) if score.score is None else score.score
        if response_id in column.scores or response_id in column.reasons:
            # The first record counts, as with responses; an equal one is only a repetition.
            rejected[DUPLICATE if column.get_value(response_id) == value else ID_REUSED] += 1
        elif isinstance(value, str):
            column.reasons[response_id] = value
        else:
            column.scores[response_id] = value
    return rejected


_NAMES = {
    DetectorKind.STATEMENT_SUPPORT: "RAGAS-style",
    DetectorKind.CLAIM_SUPPORT: "VeriScore-style",
    DetectorKind.STEP_SUPPORT: "step support",
    DetectorKind.ALIGNMENT: "alignment",
    DetectorKind.CLOSURE: "closure",
    DetectorKind.VERIFIER: "verifier",
}
# Named models of the paper, by a part of their names; another model in their place has the plain name.
_PAPER_NAMES = {
    DetectorKind.STEP_SUPPORT: ("alignscore", "AlignScore"),
    DetectorKind.CLOSURE: ("t5_xxl_true_nli_mixture", "T5 closure"),
}


def name_detectors(detectors: Sequence[DetectorIdentity]) -> dict[DetectorIdentity, str]:
    """Return a short name for each detector; those of the same name are numbered.

    A detector has the name of a published model only where that model is behind it.
    """
    names = {detector: _name_detector(detector) for detector in detectors}
    repeated = Counter(names.values())
    number: Counter[str] = Counter()
    for detector, name in names.items():
        number[name] += 1
        if repeated[name] > 1:
            names[detector] = f"{name} {number[name]}"
    return names


def _name_detector(detector: DetectorIdentity) -> str:
    if detector.kind is DetectorKind.CONTROL:
        return detector.model
    part, name = _PAPER_NAMES.get(detector.kind, ("", _NAMES[detector.kind]))
    return name if part in detector.model.lower() else _NAMES[detector.kind]


_GROUPS: tuple[tuple[str, str, TraceGroup | None], ...] = (
    ("reliable", "reliable", TraceGroup.RELIABLE),
    ("gap", "in the gap", TraceGroup.GAP),
    ("unsound", "unsound step", TraceGroup.LOCALLY_UNSOUND),
    ("abstained", "no answer found", TraceGroup.ABSTAINED),
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
    kinds = [str(column.detector.kind) for column in columns]
    numbers = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
    return [kind if number == 1 else f"{kind}-{number}" for kind, number in zip(kinds, numbers, strict=True)]


def build_score_entries(columns: Sequence[ScoreColumn], ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns of the explorer's index: for each response a number, or the reason as a text."""
    return [
        {
            "key": key,
            "name": name,
            "model": column.detector.model,
            "column": [
                value if isinstance(value, str) else round(value, _DECIMALS) for value in map(column.get_value, ids)
            ],
        }
        for key, name, column in zip(_list_keys(columns), name_score_columns(columns), columns, strict=True)
    ]


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


def layout_score_plot(
    columns: Sequence[ScoreColumn], cases: Sequence[JudgedCase]
) -> list[tuple[str, str, list[ScoreHistogram]]]:
    """Return name, model and histograms of each detector.

    Heights are shares of a group, so large and small groups compare.
    """
    return [
        (name, column.detector.model, list(_layout_groups(column, key, cases)))
        for key, name, column in zip(_list_keys(columns), name_score_columns(columns), columns, strict=True)
    ]


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
