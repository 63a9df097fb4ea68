"""``eclose detect`` with a model in this process: a classifier or a T5 model by its folder, no server and no cost."""

from __future__ import annotations

import pytest

import eclose
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.files.jsonl import read_records
from tests.cli.test_detect import command, judge_by_world, responses, run
from tests.detectors.tiny_models import save
from tests.generating import recipe

__all__ = ["responses", "run"]
pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return save(tmp_path_factory.mktemp("weights") / "nli", "roberta", positions=480)


def scores_of(path):
    return {record.response_id: record for record in read_records(path, DetectorScore)}


def test_closure_is_scored_in_this_process_and_python_writes_the_same(run, responses, weights, tmp_path):
    output = command(run, "--detector", "closure", "--model", weights)
    assert f"scores-closure.jsonl: {len(responses)} received = {len(responses)} accepted" in output
    assert "done before" in command(run, "--detector", "closure", "--model", weights)
    other = tmp_path / "scores-python.jsonl"
    result = eclose.detect(run, detector="closure", model=str(weights), out=other)
    assert other.read_bytes() == (run / "scores-closure.jsonl").read_bytes()
    assert result.manifest.calls["unscored"] == {}
    records = scores_of(other)
    assert {record.model.split("@")[0] for record in records.values()} == {"nli"}
    assert len({record.score for record in records.values()}) > 1


def test_step_support_needs_judgments_and_names_them(run, responses, weights, tmp_path):
    with pytest.raises(eclose.UserError, match="scores substantive steps only"):
        eclose.detect(run, detector="alignscore", model=str(weights))
    judge_by_world(run)
    output = command(run, "--detector", "alignscore", "--model", weights, *recipe(tmp_path, label="entailment"))
    assert f"{len(responses)} accepted" in output
    assert all(
        record.detector is DetectorKind.STEP_SUPPORT for record in scores_of(run / "scores-alignscore.jsonl").values()
    )


def test_responses_without_a_score_are_counted(run, responses, tmp_path):
    short = save(tmp_path / "short", "roberta", positions=60)
    output = command(run, "--detector", "closure", "--model", short, "--max-unscored-share", 0.5, code=3)
    row = next(line for line in output.splitlines() if line.startswith("too long"))
    assert row.split()[2:] == [str(len(responses)), "100.0", "%"]


def test_a_dry_run_loads_nothing(run, tmp_path):
    assert "no calls and no cost" in command(run, "--detector", "closure", "--model", tmp_path / "none", "--dry-run")


def test_sentences_and_chunks_are_for_alignscore_alone(weights, tmp_path):
    settings = eclose.LocalDetectorSettings(detector=DetectorKind.STEP_SUPPORT)
    named = save(tmp_path / "alignscore-tiny", "roberta", labels=("ALIGNED", "CONTRADICT", "NEUTRAL"))
    assert settings.build_detector(str(named)).identity["method"] == "alignscore nli_sp"
    assert settings.build_detector(str(weights)).identity["method"] == "step against passage"


def test_settings_of_another_detector_are_refused(run, weights):
    with pytest.raises(eclose.SettingError, match="no detector with a model in this process"):
        eclose.LocalDetectorSettings(detector=DetectorKind.ALIGNMENT)
    with pytest.raises(eclose.SettingError, match="is no detector"):
        eclose.detect(run, detector="truth", model=str(weights))
    with pytest.raises(eclose.SettingError, match="judgments"):
        eclose.detect(run, detector="ragas", model="http://127.0.0.1:9/v1", judgments="j.jsonl")
