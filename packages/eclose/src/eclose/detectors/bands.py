"""The cascade: a detector scores every response, and a judge is asked only about some of them.

The judge gets the responses in chosen bands of a calibration. The others are counted with the band, or with the reason
why they have no score; they get no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.detectors.calibrate import DetectorCalibration, read_calibration
from eclose.detectors.joined import NO_RECORD, index_scores
from eclose.detectors.scores import DetectorBand, DetectorScore, score_file_name
from eclose.errors import SettingError, UserError
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import read_records, scan_records
from eclose.files.verify import check_result_provenance
from eclose.values.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eclose.values.response import Response


@dataclass(frozen=True)
class BandFilter:
    """The responses in some bands of a calibration, as a filter for judging.

    It holds paths and no records, so that workers on other machines can read the same choice.
    """

    calibration: Path
    scores: Path
    bands: tuple[DetectorBand, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """The bands; the two files are inputs of the run."""
        return {"bands": sorted(self.bands)}

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The calibration and the scores."""
        return self.calibration, self.scores

    def read_exclusions(self) -> Callable[[Response], str | None]:
        """Read the scores; return a function from a response to the reason why it is left out, or None."""
        calibration = read_calibration(self.calibration)
        reasons: dict[str, str | None] = {}
        for id_, record in rank_records(calibration, read_records(self.scores, DetectorScore)).items():
            band = calibration.find_band(record.score)
            reason = f"no score: {record.unscored}" if record.score is None else f"{band} by {calibration.detector}"
            reasons[id_] = None if band in self.bands else reason
        # A response that the detector never saw is as unknown as one that it could not score.
        unseen = None if DetectorBand.UNSCORED in self.bands else f"no score: {NO_RECORD}"
        return lambda response: reasons.get(response.id, unseen)


def rank_records(calibration: DetectorCalibration, scores: Iterable[DetectorScore]) -> dict[str, DetectorScore]:
    """Return the scores of the calibrated detector as combined ranks, by response id.

    Raises:
        UserError: None of the scores is of the calibrated detector, model and revision.
    """
    parts = index_scores(scores)
    if calibration.identity not in parts:
        calibration.refuse_other_detector(next(iter(parts)))
    return {id_: calibration.combine_heads(record) for id_, record in parts[calibration.identity].items()}


def build_band_filter(
    instances: Path,
    responses: Path,
    calibration: Path,
    bands: Iterable[DetectorBand | str],
    *,
    scores: Path | None = None,
    allow_other_benchmark: bool = False,
) -> BandFilter:
    """Return the filter that leaves the responses in some bands to a judge.

    Args:
        instances: File of the questions, which name their benchmark.
        responses: File of the responses.
        calibration: File of a calibration.
        bands: Bands to judge: ``flagged``, ``uncertain``, ``clear``, ``unscored``.
        scores: File of the detector's scores; ``scores-<detector>.jsonl`` beside the responses by default.
        allow_other_benchmark: Use a calibration of another benchmark.

    Raises:
        UserError: The calibration is of another benchmark, detector, model or revision, or the scores are stale.
        SettingError: A band is unknown, or there is none.
    """
    try:
        chosen = tuple(sorted({DetectorBand(band) for band in bands}))
    except ValueError as unknown:
        raise SettingError(f"{unknown}. Choose from: {', '.join(DetectorBand)}.") from unknown
    if not chosen:
        raise SettingError(f"no band to judge is named. Choose from: {', '.join(DetectorBand)}.")
    thresholds = read_calibration(calibration)
    scores = scores or responses.parent / score_file_name(thresholds.detector)
    require_regular_file(scores)
    if stale := check_result_provenance(scores, (instances, responses)).stale:
        raise UserError(f"{scores}: {' '.join(stale)} Score the responses again.")
    questions = (record.value for record in scan_records(instances, Instance))
    thresholds.refuse_other_benchmarks(
        {question.benchmark for question in questions if question is not None}, allow=allow_other_benchmark
    )
    # Read once now, so that scores of another detector are refused before a model is opened.
    rank_records(thresholds, read_records(scores, DetectorScore))
    return BandFilter(calibration, scores, chosen)
