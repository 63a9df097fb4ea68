"""Judging in a cascade: only responses in the chosen bands reach the judge, and every other one is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.detectors.bands import BandFilter, build_band_filter
from eclose.detectors.calibrate import calibrate_detectors, write_calibration
from eclose.detectors.joined import StudyInputs
from eclose.detectors.scores import DetectorBand, DetectorKind, DetectorScore, Unscored
from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose.readers.judged_run import read_judged_cases
from eclose.readers.response_tasks import ResponseTasks
from eclose.values.judgment import Judgment
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.detectors.study_making import VERIFIER, make_reliable_verdicts

# With 100 reliable scores of 0.000 to 0.099, the threshold is the fifth and the uncertain band ends at the twentieth.
SCORES = (0.001, 0.03, 0.1, 0.15, 0.19, 0.5, 0.9, None)
BANDS = ("flagged", "flagged", "uncertain", "uncertain", "uncertain", "clear", "clear", "unscored")


def score(response_id, value, model=VERIFIER):
    details = {} if value is None else {"alignment": value, "closure": value}
    reason = Unscored.NO_ANSWER if value is None else None
    return DetectorScore(
        response_id=response_id,
        detector=DetectorKind.VERIFIER,
        model=model,
        score=value,
        unscored=reason,
        details=details,
    )


@pytest.fixture
def run(tmp_path):
    """A run of nine responses: two of each band but one without a score and one without a record."""
    items = list(islice(make_world_items("short-easy", 3), 3))
    plans = (FailurePlan(), *FAILURE_PLANS[:4])
    responses = [broken.response for item in items for plan in plans if (broken := break_response(item, plan, "x"))][:9]
    folder = tmp_path / "run"
    folder.mkdir()
    jsonl.write_records(folder / "instances.jsonl", (item.instance for item in items))
    jsonl.write_records(folder / "responses.jsonl", responses)
    scores = [score(response.id, value) for response, value in zip(responses, SCORES, strict=False)]
    jsonl.write_records(folder / "scores-verifier.jsonl", scores)
    calibrate(folder, items[0].instance.benchmark)
    return folder


def calibrate(folder, benchmark):
    responses, verdicts = make_reliable_verdicts(100, benchmark)
    reliable = [score(response.id, index / 100) for index, response in enumerate(responses)]
    (calibration,) = calibrate_detectors(StudyInputs(reliable, responses, verdicts))
    assert (calibration.threshold, calibration.uncertain_below) == (0.055, 0.205)
    write_calibration(folder / "calibration.json", calibration)


def band_filter(run, *bands, **options):
    return build_band_filter(
        run / "instances.jsonl", run / "responses.jsonl", run / "calibration.json", bands, **options
    )


def list_ids(run):
    return [json.loads(line)["id"] for line in (run / "responses.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "bands", [("uncertain",), ("flagged",), ("flagged", "uncertain"), ("unscored",), ("clear", "unscored")]
)
def test_the_tasks_of_the_chosen_bands(run, bands):
    tasks = ResponseTasks(run / "instances.jsonl", run / "responses.jsonl", band_filter(run, *bands))
    assert len(tasks) == 9
    records = list(tasks)
    assert [record.rejected is None for record in records] == [
        band in bands
        for band in (*BANDS, "unscored")  # the ninth response has no record at all
    ]
    reasons = {band: {record.rejected for record, name in zip(records, BANDS, strict=False) if name == band}
               for band in set(BANDS) - set(bands)}  # fmt: skip
    texts = {band: {f"{band} by verifier"} for band in DetectorBand} | {"unscored": {"no score: no answer"}}
    assert reasons == {band: texts[band] for band in reasons}
    assert records[8].rejected == (None if "unscored" in bands else "no score: not run")


def command(*arguments, code=0):
    result = CliRunner().invoke(app, ["judge", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_the_judge_sees_the_band_alone_and_the_others_are_counted(run):
    words = (run, "--no-price", "--only", "uncertain", "--calibration", run / "calibration.json")
    with ModelServerThread(build_world_handlers()) as server:
        forecast = command(*words, "--judge", server.base_url, "--dry-run")
        output = command(*words, "--judge", server.base_url)
        paid = server.bill(keys=False)["totals"]["paid"]
        again = command(*words, "--judge", server.base_url)
        assert server.bill(keys=False)["totals"]["paid"] == paid > 0
    assert f"{paid} calls" in forecast
    assert "9 received = 3 accepted + 6 rejected" in output
    assert "done before" in again
    judged = [row.response_id for row in jsonl.read_records(run / "judgments.jsonl", Judgment)]
    ids = list_ids(run)
    assert sorted(judged) == sorted(ids[2:5])
    manifest = read_manifest(run / "judgments.jsonl.manifest.json")
    assert manifest.counts.rejected == {
        "read: clear by verifier": 2,
        "read: flagged by verifier": 2,
        "read: no score: no answer": 1,
        "read: no score: not run": 1,
    }
    assert {"calibration.json", "scores-verifier.jsonl"} < set(manifest.inputs)
    listed = [json.loads(line) for line in (run / "judgments.jsonl.rejected.jsonl").read_text().splitlines()]
    assert {row["id"]: row["reason"] for row in listed}[repr(ids[0])] == "flagged by verifier"
    cases = read_judged_cases(run)
    assert len(cases.cases) == 3
    assert [reason for _, reason in cases.left_out] == ["it was not judged"] * 6
    chosen = "A detector chose the responses that were judged (uncertain): the rates describe these alone."
    assert cases.notices[0] == chosen
    result = CliRunner().invoke(app, ["diagnose", str(run)])
    assert chosen in result.output
    assert chosen in (run / "report" / "report.md").read_text().replace("\\", "")


@pytest.mark.slow
def test_the_bands_belong_to_the_identity_of_a_run(run):
    with ModelServerThread(build_world_handlers()) as server:
        words = (run, "--no-price", "--judge", server.base_url, "--calibration", run / "calibration.json")
        command(*words, "--only", "uncertain")
        paid = server.bill(keys=False)["totals"]["paid"]
        other = CliRunner().invoke(app, ["judge", *map(str, words), "--only", "flagged"])
        assert "was made from other inputs or with other settings" in str(other.exception)
        # The order of the bands and a repeated one change nothing; known replies are not paid for again.
        command(*words, "--only", "flagged", "--only", "uncertain", "--force")
        assert server.bill(keys=False)["totals"]["paid"] > paid
        assert "done before" in command(*words, "--only", "uncertain", "--only", "flagged", "--only", "flagged")


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_same_choice(run):
    words = (run, "--no-price", "--only", "uncertain", "--calibration", run / "calibration.json")
    with ModelServerThread(build_world_handlers()) as server:
        command(*words, "--judge", server.base_url)
        paid = server.bill(keys=False)["totals"]["paid"]
        first = (run / "judgments.jsonl").read_bytes()
        for name in ("judgments.jsonl", "judgments.jsonl.manifest.json"):
            (run / name).unlink()
        assert "9 received = 3 accepted + 6 rejected" in command(*words, "--judge", server.base_url)
        assert server.bill(keys=False)["totals"]["paid"] == paid
    assert (run / "judgments.jsonl").read_bytes() == first


@pytest.mark.slow
def test_python_judges_the_same_band(run):
    with ModelServerThread(build_world_handlers()) as server:
        results = eclose.evaluate(
            run,
            judge=server.base_url,
            calls=eclose.CallSettings(unpriced=True),
            only=band_filter(run, "uncertain", "unscored"),
        )
    assert len(results) == 5
    assert results.notices[0].startswith("A detector chose the responses that were judged (uncertain, unscored)")


def test_a_filter_that_does_not_fit_the_run_is_refused(run):
    with pytest.raises(SettingError, match=r"'sure' is not a valid DetectorBand\. Choose from: flagged, uncertain"):
        band_filter(run, "sure")
    with pytest.raises(SettingError, match="no band"):
        band_filter(run)
    scores = list(jsonl.read_records(run / "scores-verifier.jsonl", DetectorScore))
    jsonl.write_records(run / "other.jsonl", [replace(row, model="linear@fedcba9876543210") for row in scores])
    with pytest.raises(UserError, match="the scores are of verifier with linear@fedcba9876543210"):
        band_filter(run, "flagged", scores=run / "other.jsonl")
    with pytest.raises(UserError, match=r"missing.jsonl"):
        band_filter(run, "flagged", scores=run / "missing.jsonl")


def test_a_calibration_of_another_benchmark_is_refused_unless_allowed(run):
    calibrate(run, "strategyqa")
    with pytest.raises(UserError, match=r"made on strategyqa, and these responses are of .*other_benchmark: true"):
        band_filter(run, "flagged")
    assert isinstance(band_filter(run, "flagged", allow_other_benchmark=True), BandFilter)


@pytest.mark.slow
def test_only_and_calibration_go_together(run):
    for words in (["--only", "flagged"], ["--calibration", run / "calibration.json"]):
        result = CliRunner().invoke(app, ["judge", str(run), "--judge", "http://127.0.0.1:9/v1", *map(str, words)])
        assert isinstance(result.exception, SettingError)
