"""Calibration of a detector on labelled responses: a threshold, and ranks that make its heads comparable.

A head is one part of a detector's score: ``support``, ``alignment`` and ``closure`` of a verifier, or the score itself.
The rank of a head's value is the share of the reliable calibration responses below it, and the combined rank is the
smallest rank over the heads. Ranks hold for responses like those of the calibration, so a calibration is refused for
another model, and for another benchmark unless the caller allows it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from eclose.detectors.joined import (
    DetectorCounts,
    StudyInputs,
    count_records,
    index_responses,
    index_scores,
    index_verdicts,
    read_study_inputs,
)
from eclose.detectors.scores import DetectorBand, DetectorKind, DetectorScore, Unscored, require_score_files
from eclose.detectors.study_statistics import FAILURE_GROUPS, DetectorIdentity, StudyGroup, list_study_groups
from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import require_regular_file
from eclose.files.manifest import hash_files
from eclose.files.run_folder import JUDGMENTS_FILE, RESPONSES_FILE
from eclose.stats.ranking import ScoredResponses, threshold_at_retention
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Spelled out: the package of verifiers uses calibrations, so importing its enumeration would make a cycle.
VERIFIER_HEADS = ("support", "alignment", "closure")
SCORE_HEAD = "score"
"""The only head of a detector without named ones."""
UNNAMED_BENCHMARK = "unnamed"
"""Stands for the benchmark of questions that name none."""
FEW_RELIABLE = 100
"""Number of reliable responses below which a calibration carries a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """Settings of a calibration.

    Raises:
        SettingError: A share is out of range.
    """

    max_false_positive_rate: float = 0.05
    """Largest share of the reliable responses that may be flagged."""
    uncertain_share: float = 0.15
    """Share of the reliable responses above the threshold that the uncertain band may take."""
    heads: tuple[str, ...] = ()
    """Heads to combine; empty for all that the scores have."""

    def __post_init__(self) -> None:
        if self.max_false_positive_rate <= 0 or self.uncertain_share < 0:
            raise SettingError("max_false_positive_rate must be above 0, and uncertain_share at least 0.")
        if self.max_false_positive_rate + self.uncertain_share >= 1:
            raise SettingError("max_false_positive_rate and uncertain_share must add up to less than 1.")

    @property
    def retention(self) -> float:
        """Share of the reliable responses that the threshold leaves unflagged."""
        # As a fraction: 1 - 0.07 as a float is 0.9299999999999999, and the share must be exact.
        return float(1 - Fraction(str(self.max_false_positive_rate)))

    @property
    def needed_reliable(self) -> int:
        """Smallest number of reliable responses of which one may be flagged."""
        return ceil(1 / Fraction(str(self.max_false_positive_rate)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorCalibration:
    """The reliable scores of one detector on labelled responses, and the thresholds that follow from them."""

    schema: Literal[1] = 1
    """Version of the file."""
    detector: DetectorKind
    model: str
    """Model behind the detector, with its revision."""
    benchmarks: tuple[str, ...]
    """Benchmarks of the calibration responses."""
    labels: str
    """Who labelled the responses, in a sentence."""
    settings: CalibrationSettings
    counts: DetectorCounts
    """What became of the scores, by group of the response and by reason."""
    heads: Mapping[str, tuple[float, ...]]
    """Sorted scores of the reliable responses, for each head."""
    ranks: tuple[float, ...]
    """Sorted combined ranks of the same responses."""
    threshold: float
    """Highest observed combined rank with at most the allowed share of the reliable responses strictly below."""
    uncertain_below: float
    """End of the uncertain band, found by the same rule with the share of the band added."""
    false_positive_rate: float
    """Share of the reliable calibration responses below the threshold; lower than allowed where ranks tie."""
    recalls: Mapping[StudyGroup, float | None]
    """Share of each failure group of the calibration responses below the threshold; None for an empty group."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Content hash of each file that the calibration was made from, by name."""
    notices: tuple[str, ...] = ()
    """Sentences on stale or few responses."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything in the calibration."""
        return content_hash(TypeAdapter(DetectorCalibration).dump_python(self, mode="json"))

    @property
    def identity(self) -> DetectorIdentity:
        """The detector with its model."""
        return DetectorIdentity(self.detector, self.model)

    def combine_heads(self, record: DetectorScore) -> DetectorScore:
        """Return the record with the combined rank as its score, and the rank of each head in its details.

        A record without a score, or without one of the calibrated heads, has no rank: a minimum over fewer heads would
        rank too high.

        Raises:
            UserError: The record is of another detector, model or revision.
        """
        self.refuse_other_detector(DetectorIdentity(record.detector, record.model))
        return combine_ranks(record, self.heads)

    def find_band(self, rank: float | None) -> DetectorBand:
        """Return the band of a combined rank."""
        if rank is None:
            return DetectorBand.UNSCORED
        if rank < self.threshold:
            return DetectorBand.FLAGGED
        return DetectorBand.UNCERTAIN if rank < self.uncertain_below else DetectorBand.CLEAR

    def refuse_other_detector(self, identity: DetectorIdentity) -> None:
        """Raise where scores are of another detector, model or revision."""
        if identity != self.identity:
            raise UserError(
                f"the calibration is of {self.detector} with {self.model}, and the scores are of {identity.kind} with"
                f" {identity.model}. Calibrate that detector, or name its scores."
            )

    def refuse_other_benchmarks(self, benchmarks: Iterable[str | None], *, allow: bool = False) -> tuple[str, ...]:
        """Return a notice for responses of other benchmarks; raise instead unless ``allow``."""
        others = sorted({name or UNNAMED_BENCHMARK for name in benchmarks} - {*self.benchmarks})
        if not others:
            return ()
        problem = (
            f"the calibration was made on {', '.join(self.benchmarks)}, and these responses are of {', '.join(others)}."
            " Thresholds do not carry over between benchmarks"
        )
        if not allow:
            raise UserError(
                f"{problem}: calibrate on labelled responses of the same benchmark, or set other_benchmark: true"
                " in a recipe (allow_other_benchmark=True in Python) to go on with a warning."
            )
        return (f"{problem}.",)


def rank_score(score: float, reliable: Sequence[float]) -> float:
    """Return the share of sorted reliable scores below a score; equal ones count half.

    >>> rank_score(0.5, [0.2, 0.5, 0.9, 0.9]), rank_score(0.1, [0.2, 0.5]), rank_score(1.0, [0.2, 0.5])
    (0.375, 0.0, 1.0)
    """
    return (bisect_left(reliable, score) + bisect_right(reliable, score)) / (2 * len(reliable))


def combine_ranks(record: DetectorScore, heads: Mapping[str, Sequence[float]]) -> DetectorScore:
    """Return a record whose score is the smallest rank over the heads."""
    values = list_head_values(record)
    if record.score is None:
        return record
    if missing := [head for head in heads if head not in values]:
        return replace(record, score=None, unscored=Unscored.NO_HEAD, details={"missing": missing})
    ranks = {head: rank_score(values[head], reliable) for head, reliable in heads.items()}
    return replace(record, score=min(ranks.values()), details={"ranks": ranks})


def list_head_values(record: DetectorScore) -> dict[str, float]:
    """Return the value of each head of a record; empty without a score."""
    if record.score is None:
        return {}
    if record.detector is DetectorKind.VERIFIER:
        values = {head: record.details.get(head) for head in VERIFIER_HEADS}
        # A verifier's score with a calibration is a rank already; its heads are what can be ranked anew.
        if heads := {head: float(value) for head, value in values.items() if value is not None}:
            return heads
    return {SCORE_HEAD: record.score}


def calibrate_detectors(
    data: StudyInputs, settings: CalibrationSettings | None = None, *, files: Mapping[str, str] | None = None
) -> tuple[DetectorCalibration, ...]:
    """Calibrate every detector on the reliable responses among the labelled ones.

    ``files`` are the content hashes of the files that the data were read from, by name.

    Raises:
        UserError: A detector scored fewer reliable responses than the threshold needs, or lacks a head.
    """
    settings = settings or CalibrationSettings()
    verdict_of = index_verdicts(data.verdicts)
    answered = index_responses(data.responses)
    rows = {id_: verdict_of[id_] for id_ in answered if id_ in verdict_of}
    groups = {id_: list_study_groups(rows[id_].verdict) if id_ in rows else () for id_ in answered}
    # Undecided responses take no part, so their benchmarks do not count either.
    benchmarks = sorted({row.benchmark or UNNAMED_BENCHMARK for id_, row in rows.items() if groups[id_]})
    return tuple(
        _calibrate_detector(identity, part, groups, settings, data=data, benchmarks=benchmarks, files=files or {})
        for identity, part in index_scores(data.scores).items()
    )


def _calibrate_detector(
    identity: DetectorIdentity,
    part: Mapping[str, DetectorScore],
    groups: Mapping[str, tuple[StudyGroup, ...]],
    settings: CalibrationSettings,
    *,
    data: StudyInputs,
    benchmarks: Sequence[str],
    files: Mapping[str, str],
) -> DetectorCalibration:
    heads = _collect_reliable_heads(identity, part, groups, settings)
    combined = {id_: combine_ranks(record, heads) for id_, record in part.items()}
    ranks = {
        group: sorted(
            record.score
            for id_, record in combined.items()
            if record.score is not None and group in groups.get(id_, ())
        )
        for group in StudyGroup
    }
    reliable = ranks[StudyGroup.RELIABLE]
    _refuse_few_reliable(identity, len(reliable), settings)
    allowed, band = (Fraction(str(share)) for share in (settings.max_false_positive_rate, settings.uncertain_share))
    threshold, uncertain_below = (find_threshold(reliable, share) for share in (allowed, allowed + band))
    notices = data.notices
    if len(reliable) < FEW_RELIABLE:
        points = f"{100 / len(reliable):.1f}"
        notices += (f"The threshold rests on {len(reliable)} reliable responses: each is {points} points of FPR.",)
    return DetectorCalibration(
        detector=identity.kind,
        model=identity.model,
        benchmarks=tuple(benchmarks),
        labels=data.label_source,
        settings=settings,
        counts=count_records(combined, groups),
        heads={head: tuple(values) for head, values in heads.items()},
        ranks=tuple(reliable),
        threshold=threshold,
        uncertain_below=uncertain_below,
        false_positive_rate=bisect_left(reliable, threshold) / len(reliable),
        recalls={
            group: bisect_left(ranks[group], threshold) / len(ranks[group]) if ranks[group] else None
            for group in FAILURE_GROUPS
        },
        inputs=files,
        notices=notices,
    )


def _collect_reliable_heads(
    identity: DetectorIdentity,
    part: Mapping[str, DetectorScore],
    groups: Mapping[str, tuple[StudyGroup, ...]],
    settings: CalibrationSettings,
) -> dict[str, list[float]]:
    """Return the sorted values of each head over the reliable responses that have all of them."""
    values = {id_: list_head_values(record) for id_, record in part.items()}
    names = [head for head in (*VERIFIER_HEADS, SCORE_HEAD) if any(head in row for row in values.values())]
    if absent := [head for head in settings.heads if head not in names]:
        raise UserError(
            f"{identity.kind} with {identity.model} has no scores of {', '.join(absent)}; it has"
            f" {', '.join(names) or 'none at all'}. Name other heads."
        )
    heads = [head for head in names if head in settings.heads] if settings.heads else names
    complete = [
        row
        for id_, row in values.items()
        if StudyGroup.RELIABLE in groups.get(id_, ()) and row and all(head in row for head in heads)
    ]
    _refuse_few_reliable(identity, len(complete), settings)
    return {head: sorted(row[head] for row in complete) for head in heads}


def _refuse_few_reliable(identity: DetectorIdentity, reliable: int, settings: CalibrationSettings) -> None:
    if reliable < settings.needed_reliable:
        raise UserError(
            f"{identity.kind} with {identity.model} scored {reliable} reliable responses. A threshold at"
            f" {100 * settings.max_false_positive_rate:g} % false positives needs at least {settings.needed_reliable}:"
            " label more responses, or allow more false positives."
        )


def find_threshold(reliable: Sequence[float], share: Fraction) -> float:
    """Return the highest observed score with at most ``share`` of the reliable ones strictly below."""
    scores = np.array(reliable, float)
    flags = np.ones(len(scores), bool)
    # The complement as a fraction: 1 - 0.07 as a float is 0.9299999999999999, and the share must be exact.
    threshold = threshold_at_retention(ScoredResponses(scores, ~flags, flags), float(1 - share))
    assert threshold is not None
    return threshold


def calibrate_run(
    runs: Sequence[Path],
    scores: Sequence[Path] = (),
    *,
    verdicts: Path | None = None,
    settings: CalibrationSettings | None = None,
    out: Path | None = None,
    allow_stale: bool = False,
) -> dict[Path, DetectorCalibration]:
    """Calibrate the detectors of labelled runs, and write a file for each.

    Args:
        runs: Folders with questions and responses, and with judgments unless ``verdicts`` is given.
        scores: Files of scores, of one or more detectors; by default every ``scores-*.jsonl`` in the runs.
        verdicts: File of settled verdicts, such as those of people; the judgments of the runs by default.
        settings: Shares and heads.
        out: File of a single calibration; by default ``calibration-<detector>.json`` in the first run.
        allow_stale: Use results that were made from other files; the calibration says so.

    Returns:
        The calibrations by the path of their file.

    Raises:
        UserError: The files do not belong together, or hold too few reliable responses.
        SettingError: Two calibrations would have one file.
    """
    scores = scores or require_score_files(runs)
    data = read_study_inputs(runs, scores, verdicts, allow_stale=allow_stale)
    labels = [run / JUDGMENTS_FILE for run in runs] if verdicts is None else [verdicts]
    files = [*scores, *(run / RESPONSES_FILE for run in runs), *labels]
    calibrations = calibrate_detectors(data, settings, files=hash_files(files))
    kinds = [calibration.detector for calibration in calibrations]
    if len(kinds) > 1 and (out is not None or len(set(kinds)) < len(kinds)):
        raise SettingError(
            f"the scores are of {len(kinds)} detectors, which would share a file. Name the scores of one detector with"
            " --scores, and its file with --out."
        )
    paths = {out or runs[0] / f"calibration-{row.detector}.json": row for row in calibrations}
    for path, calibration in paths.items():
        write_calibration(path, calibration)
    return paths


def write_calibration(path: Path, calibration: DetectorCalibration) -> None:
    """Write a calibration as JSON."""
    data = TypeAdapter(DetectorCalibration).dump_python(calibration, mode="json")
    with AtomicFile(path) as file:
        file.write(json.dumps(data, indent=1, allow_nan=False).encode() + b"\n")


def read_calibration(path: Path | str) -> DetectorCalibration:
    """Read a calibration from its file.

    Raises:
        UserError: The file is missing or holds something else.
    """
    require_regular_file(Path(path))
    try:
        return TypeAdapter(DetectorCalibration).validate_json(Path(path).read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not a calibration ({invalid.error_count()} errors). Write one with: eclose detect"
            " calibrate RUN."
        ) from invalid
