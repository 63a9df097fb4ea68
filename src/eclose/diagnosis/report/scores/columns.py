"""Scores of detectors beside judged responses: one column for each detector, with a reason where there is no score."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.detection.scores import DetectorScore, list_score_files
from eclose.detection.study import NO_RECORD
from eclose.detection.study_statistics import DetectorIdentity
from eclose.judged_cases import RejectCounts, name_run_folders
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, scan_records
from eclose.store.runs.folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.store.runs.verify_files import check_result_provenance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """The columns of a report, and what a reader must know about the files."""

    columns: tuple[ScoreColumn, ...] = ()
    notices: tuple[str, ...] = ()
    """A sentence for each stale file of scores; it is shown only where stale files are allowed."""
    rejected: RejectCounts = field(default_factory=dict)
    """Records that were not used, by file and reason."""


def read_score_columns(runs: Sequence[Path], ids: Collection[str], *, allow_stale: bool = False) -> ScoreColumns:
    """Read every ``scores-*.jsonl`` of runs.

    A file that was made from other questions or responses is left out with a notice: the report of the judgments must
    not depend on it.

    Args:
        runs: Folders of runs.
        ids: Ids of the responses in the report; with the name of the run in front where two runs share an id.
        allow_stale: Whether files that were made from other responses are shown.
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
    return ScoreColumns(
        tuple(columns.values()), tuple(notices), {file: counts for file, counts in rejected.items() if counts}
    )


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
