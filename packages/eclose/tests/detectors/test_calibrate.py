"""Calibrations against loops over single responses, on random scores with ties; and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from eclose.detectors.calibrate import (
    VERIFIER_HEADS,
    CalibrationSettings,
    calibrate_detectors,
    calibrate_run,
    rank_score,
    read_calibration,
    write_calibration,
)
from eclose.detectors.joined import StudyInputs
from eclose.detectors.scores import DetectorBand, DetectorKind
from eclose.detectors.study_statistics import StudyGroup
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import write_records
from eclose_train.verifier.linear import VerifierHead
from tests.detectors.study_making import (
    GAP,
    make_reliable_verdicts,
    make_responses,
    make_scores,
    make_verifier_scores,
    write_labelled_run,
)


def loop_rank(value, reliable):
    below = sum(other < value for other in reliable)
    ties = sum(other == value for other in reliable)
    return (below + ties / 2) / len(reliable)


def loop_threshold(ranks, share):
    return max(t for t in ranks if Fraction(sum(rank < t for rank in ranks), len(ranks)) <= share)


@pytest.fixture(scope="module")
def calibrated():
    responses, verdicts, truth = make_responses(3, questions=60)
    scores = make_verifier_scores(4, truth)
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts))
    return calibration, scores, truth, responses, verdicts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate,band", [(0.05, 0.15), (0.07, 0.0), (0.2, 0.5)])
def test_ranks_thresholds_and_recalls_by_loops(seed, rate, band):
    responses, verdicts, truth = make_responses(seed, questions=50)
    scores = make_verifier_scores(seed + 100, truth)
    settings = CalibrationSettings(max_false_positive_rate=rate, uncertain_share=band)
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts), settings)
    whole = {row.response_id: row for row in scores if row.score is not None and "closure" in row.details}
    reliable = [row for id_, row in whole.items() if truth[id_] == "reliable"]
    for head in VERIFIER_HEADS:
        assert calibration.heads[head] == tuple(sorted(row.details[head] for row in reliable))

    def loop_combined(row):
        return min(loop_rank(row.details[head], [other.details[head] for other in reliable]) for head in VERIFIER_HEADS)

    ranks = [loop_combined(row) for row in reliable]
    threshold = loop_threshold(ranks, Fraction(str(rate)))
    assert calibration.threshold == threshold
    end = loop_threshold(ranks, Fraction(str(rate)) + Fraction(str(band)))
    assert calibration.uncertain_below == end
    assert calibration.false_positive_rate == sum(rank < threshold for rank in ranks) / len(ranks) <= rate
    gap = [loop_combined(row) for id_, row in whole.items() if truth[id_] in GAP]
    assert calibration.recalls[StudyGroup.GAP] == pytest.approx(sum(rank < threshold for rank in gap) / len(gap))
    for row in scores:
        combined = calibration.combine_heads(row)
        band_of_row = calibration.find_band(combined.score)
        if row.response_id not in whole:
            assert (combined.score, band_of_row) == (None, DetectorBand.UNSCORED)
            continue
        rank = loop_combined(row)
        assert combined.score == pytest.approx(rank, abs=1e-15)
        expected = "flagged" if rank < threshold else "uncertain" if rank < end else "clear"
        assert band_of_row == expected


def test_every_record_and_response_is_counted(calibrated):
    calibration, scores, truth, *_ = calibrated
    counts = calibration.counts
    assert counts.records == len(scores)
    for name, group in (("reliable", StudyGroup.RELIABLE), ("locally_unsound", StudyGroup.LOCALLY_UNSOUND)):
        part = counts.groups[group]
        assert part.responses == sum(kind == name for kind in truth.values())
        assert part.scored + sum(part.unscored.values()) == part.responses
    reasons = {reason for part in (*counts.groups.values(), counts.undecided) for reason in part.unscored}
    assert reasons == {"not run", "no answer", "head missing"}
    assert len(calibration.ranks) == counts.groups[StudyGroup.RELIABLE].scored
    assert calibration.benchmarks == ("2wiki", "hotpot", "musique")


def test_ties_share_a_rank_and_scores_below_all_reliable_have_none_below():
    reliable = [0.2, 0.4, 0.4, 0.4, 0.9]
    assert rank_score(0.4, reliable) == (1 + 3 / 2) / 5
    assert rank_score(0.1, reliable) == 0
    assert rank_score(0.2, reliable) == 0.1
    assert rank_score(0.95, reliable) == 1


def test_the_heads_are_those_of_verifiers():
    assert tuple(VerifierHead) == VERIFIER_HEADS


def test_some_of_the_heads(calibrated):
    _, scores, _, responses, verdicts = calibrated
    settings = CalibrationSettings(heads=("closure", "alignment"))
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts), settings)
    assert set(calibration.heads) == {"alignment", "closure"}
    row = next(row for row in scores if row.details.get("closure") is not None)
    assert set(calibration.combine_heads(row).details["ranks"]) == {"alignment", "closure"}
    with pytest.raises(UserError, match=r"no scores of score; it has support, alignment, closure"):
        calibrate_detectors(StudyInputs(scores, responses, verdicts), CalibrationSettings(heads=("score",)))


def test_a_detector_without_heads_is_ranked_by_its_score():
    responses, verdicts, truth = make_responses(5, questions=60)
    scores = make_scores(5, truth)
    calibrations = calibrate_detectors(StudyInputs(scores, responses, verdicts))
    assert [row.detector for row in calibrations] == ["ragas", "alignscore", "closure"]
    for calibration in calibrations:
        values = [
            row.score
            for row in scores
            if row.detector is calibration.detector and row.score is not None and truth[row.response_id] == "reliable"
        ]
        assert calibration.heads == {"score": tuple(sorted(values))}


def test_another_detector_model_or_revision_is_refused(calibrated):
    calibration, scores, *_ = calibrated
    for change in ({"model": "linear@other"}, {"detector": DetectorKind.CLOSURE}):
        with pytest.raises(UserError, match="the calibration is of verifier with linear@0123456789ab"):
            calibration.combine_heads(replace(scores[0], **change))


def test_another_benchmark_is_refused_unless_allowed(calibrated):
    calibration, *_ = calibrated
    assert calibration.refuse_other_benchmarks(["hotpot", "2wiki"]) == ()
    with pytest.raises(UserError, match=r"these responses are of strategyqa, unnamed\..*other_benchmark: true"):
        calibration.refuse_other_benchmarks(["hotpot", "strategyqa", None])
    (notice,) = calibration.refuse_other_benchmarks(["strategyqa"], allow=True)
    assert "do not carry over" in notice


def make_reliable(count):
    responses, verdicts = make_reliable_verdicts(count)
    return responses, verdicts, make_verifier_scores(2, {row.id: "reliable" for row in responses}, missing=0)


@pytest.mark.parametrize("count,rate", [(19, 0.05), (9, 0.1), (49, 0.02)])
def test_too_few_reliable_responses_are_refused_with_the_number_needed(count, rate):
    settings = CalibrationSettings(max_false_positive_rate=rate)
    responses, verdicts, scores = make_reliable(count)
    with pytest.raises(UserError, match=rf"scored {count} reliable responses.* needs at least {count + 1}:"):
        calibrate_detectors(StudyInputs(scores, responses, verdicts), settings)
    responses, verdicts, scores = make_reliable(count + 1)
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts), settings)
    assert f"rests on {count + 1} reliable responses" in calibration.notices[0]
    assert calibration.recalls[StudyGroup.GAP] is None


def test_many_reliable_responses_carry_no_notice():
    responses, verdicts, scores = make_reliable(100)
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts))
    assert calibration.notices == ()


@pytest.mark.parametrize(
    "change", [{"max_false_positive_rate": 0}, {"uncertain_share": -0.1}, {"uncertain_share": 0.95}]
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(SettingError):
        CalibrationSettings(**change)


def test_a_calibration_is_read_as_it_was_written(calibrated, tmp_path):
    calibration, *_ = calibrated
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration)
    again = read_calibration(path)
    assert again == calibration
    assert again.fingerprint == calibration.fingerprint
    assert replace(calibration, threshold=0.5).fingerprint != calibration.fingerprint
    path.write_text('{"schema": 1}')
    with pytest.raises(UserError, match="not a calibration"):
        read_calibration(path)


@pytest.mark.slow
def test_the_calibration_of_a_run_names_its_files(calibrated, tmp_path):
    _, scores, _, responses, verdicts = calibrated
    run = tmp_path / "run"
    write_labelled_run(run, responses, verdicts, scores)
    files = {"verdicts": run / "people.jsonl"}
    ((path, calibration),) = calibrate_run([run], [run / "scores-verifier.jsonl"], **files).items()
    assert path == run / "calibration-verifier.json"
    assert read_calibration(path) == calibration
    assert set(calibration.inputs) == {"scores-verifier.jsonl", "responses.jsonl", "people.jsonl"}
    assert calibration.labels == "The groups rest on the settled verdicts in people.jsonl."
    other = tmp_path / "other.jsonl"
    write_records(other, [replace(row, model="linear@fedcba9876543210") for row in scores])
    with pytest.raises(SettingError, match="2 detectors, which would share a file"):
        calibrate_run([run], [run / "scores-verifier.jsonl", other], **files)
    assert list(calibrate_run([run], [other], **files, out=tmp_path / "c.json")) == [tmp_path / "c.json"]
