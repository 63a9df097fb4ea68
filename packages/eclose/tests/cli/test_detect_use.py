"""From scores of world responses to thresholds, a judged band and the better of several samples, by commands alone."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.detectors.calibrate import read_calibration
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.select_answer import ResponseChoice
from eclose.files import jsonl
from eclose.values.judgment import Judgment
from eclose.values.verdict import SettledVerdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.generating import recipe

QUESTIONS = 24


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def draw(text):
    """A number between 0 and 1 that only the text decides."""
    return int.from_bytes(sha256(text.encode()).digest()[:4]) / 2**32


def score(response, verdict):
    """Heads that see their own label through noise: low where the dependency fails, with some overlap."""
    labels = {"support": verdict.locally_sound, "alignment": verdict.aligned, "closure": verdict.closed}
    heads = {
        head: round((0.3 if holds is not False else 0) + 0.7 * draw(f"{head} {response.id}"), 2)
        for head, holds in labels.items()
    }
    return DetectorScore(
        response_id=response.id,
        detector=DetectorKind.VERIFIER,
        model="linear@0123456789ab",
        score=min(heads.values()),
        details=heads,
    )


def write_run(folder, seed):
    folder.mkdir()
    items = list(islice(make_world_items("short-easy", seed), QUESTIONS))
    # Two sound responses, two unsound ones, and one of each class of the gap.
    plans = (FailurePlan(), FailurePlan(), *FAILURE_PLANS[:2], *FAILURE_PLANS[10:13])
    planted = [
        (item.instance, broken)
        for item in items
        for number, plan in enumerate(plans)
        if (broken := break_response(item, plan, f"{number}")) is not None
    ]
    # In an order that tells nothing, since ties of a choice go to the first response.
    planted.sort(key=lambda pair: draw(pair[1].response.id))
    unique = {broken.response.id: (instance, broken) for instance, broken in planted}
    jsonl.write_records(folder / "instances.jsonl", (item.instance for item in items))
    jsonl.write_records(folder / "responses.jsonl", (broken.response for _, broken in unique.values()))
    verdicts = [
        SettledVerdict(broken.response.id, instance.id, broken.verdict, instance.benchmark)
        for instance, broken in unique.values()
    ]
    jsonl.write_records(folder / "people.jsonl", verdicts)
    scores = [score(broken.response, broken.verdict) for _, broken in unique.values()]
    jsonl.write_records(folder / "scores-verifier.jsonl", scores)
    return verdicts


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    labels = {name: write_run(folder / name, seed) for name, seed in (("first", 3), ("second", 4))}
    output = command("detect", "calibrate", folder / "first", "--verdicts", folder / "first" / "people.jsonl")
    return folder, labels, output


@pytest.mark.slow
def test_a_calibration_is_written_and_told(runs):
    folder, labels, output = runs
    calibration = read_calibration(folder / "first" / "calibration-verifier.json")
    reliable = sum(bool(row.verdict.reliable) for row in labels["first"])
    assert len(calibration.ranks) == reliable
    assert set(calibration.heads) == {"support", "alignment", "closure"}
    assert f"flagged below rank {calibration.threshold:.3f}" in output
    assert re.search(rf"^reliable +{reliable} +{100 * calibration.false_positive_rate:.1f}", output, re.MULTILINE)
    assert "calibration-verifier.json: written" in output
    assert f"The threshold rests on {reliable} reliable responses" in output


@pytest.mark.slow
def test_options_of_a_calibration_reach_it(runs, tmp_path):
    folder, _, _ = runs
    words = ["detect", "calibrate", folder / "first", "--verdicts", folder / "first" / "people.jsonl"]
    out = tmp_path / "c.json"
    command(*words, "--max-fpr", 0.1, *recipe(tmp_path, band=0.3, head=["closure", "alignment"]), "-o", out)
    settings = read_calibration(out).settings
    assert (settings.max_false_positive_rate, settings.uncertain_share) == (0.1, 0.3)
    assert set(read_calibration(out).heads) == {"alignment", "closure"}
    result = CliRunner().invoke(app, [*map(str, words), "--max-fpr", "0.001"])
    assert "needs at least 1000" in str(result.exception)


@pytest.mark.slow
def test_another_run_is_evaluated_beside_the_controls(runs, tmp_path):
    folder, labels, _ = runs
    second = folder / "second"
    words = ["detect", "evaluate", second, "--calibration", folder / "first" / "calibration-verifier.json"]
    output = command(*words, "--verdicts", second / "people.jsonl", *recipe(tmp_path, resamples=50))
    data = json.loads((second / "evaluation-verifier" / "evaluation.json").read_text())
    page = (second / "evaluation-verifier" / "evaluation.md").read_text()
    decided = sum(row.verdict.trace_group is not None for row in labels["second"])
    assert data["responses"] == decided
    assert data["cascade"][-1] == {
        "threshold": None, "judged": decided, "saved": 0, "gaps_missed": 0, "unsound_missed": 0, "recall": 1.0,
    }  # fmt: skip
    groups = ("reliable", "gap", "locally_unsound")
    assert sum(counts[group] for counts in data["bands"].values() for group in groups) == decided
    names = {row["name"]: row for row in data["study"]["detectors"]}
    assert set(names) == {
        "verifier", "word overlap", "question words", "answer words", "number of steps", "conclusion word",
    }  # fmt: skip
    assert names["verifier"]["groups"]["gap"]["auroc"]["value"] > 0.6
    for text in (output, page):
        for title in ("At the calibrated threshold", "Judge calls at equal recall", "Abstention", "Detection of LGG"):
            assert title in text
        assert "number of steps" in text
    assert "0123456789ab" in page
    flagged = data["flagged"]["reliable"]["value"]
    assert f"{100 * flagged:.1f}" in output
    assert "was made from these responses" not in output
    again = command(*words[:2], folder / "first", *words[3:], "--verdicts", folder / "first" / "people.jsonl",
                    *recipe(tmp_path, resamples=20))  # fmt: skip
    assert "was made from these responses" in again


@pytest.mark.slow
def test_the_judge_sees_the_uncertain_band_and_the_choice_follows_the_scores(runs):
    folder, _, _ = runs
    second = folder / "second"
    calibration = read_calibration(folder / "first" / "calibration-verifier.json")
    scores = list(jsonl.read_records(second / "scores-verifier.jsonl", DetectorScore))
    bands = {row.response_id: calibration.find_band(calibration.combine_heads(row).score) for row in scores}
    expected = {id_ for id_, band in bands.items() if band == "uncertain"}
    assert 0 < len(expected) < len(bands)
    with ModelServerThread(build_world_handlers()) as server:
        output = command(
            "judge", second, "--judge", server.base_url, "--no-price", "--only", "uncertain",
            "--calibration", folder / "first" / "calibration-verifier.json",
        )  # fmt: skip
    assert {row.response_id for row in jsonl.read_records(second / "judgments.jsonl", Judgment)} == expected
    assert f"{len(bands)} received = {len(expected)} accepted + {len(bands) - len(expected)} rejected" in output
    diagnosis = command("diagnose", second)
    assert "clear by verifier" in diagnosis
    output = command(
        "detect", "choose", second, "--calibration", folder / "first" / "calibration-verifier.json",
        "--verdicts", second / "people.jsonl", "--min-agreement", 0.3,
    )  # fmt: skip
    choices = list(jsonl.read_records(second / "choices.jsonl", ResponseChoice))
    assert len(choices) == QUESTIONS
    assert f"of {QUESTIONS} questions" in output
    table = output[output.index("Chosen responses by the verdicts") :]
    shares = {
        line.split(", no")[0]: float(re.search(r"(\d+\.\d) %", line)[1])
        for line in table.splitlines()
        if "no abstention" in line
    }
    assert set(shares) == {"majority-verifier", "verifier", "majority", "random"}
    assert shares["majority-verifier"] >= shares["majority"]
    assert shares["verifier"] > shares["random"]


@pytest.mark.slow
def test_a_calibration_of_another_benchmark_is_refused_unless_forced(runs, tmp_path):
    folder, labels, _ = runs
    other = tmp_path / "other.json"
    text = (folder / "first" / "calibration-verifier.json").read_text()
    benchmark = labels["first"][0].benchmark
    other.write_text(text.replace(f'"{benchmark}"', '"strategyqa"'))
    words = ["detect", "choose", folder / "first", "--calibration", other, "-o", tmp_path / "choices.jsonl"]
    result = CliRunner().invoke(app, [*map(str, words)])
    assert "other_benchmark: true" in str(result.exception)
    assert "do not carry over" in command(*words, *recipe(tmp_path, other_benchmark=True))


@pytest.mark.slow
def test_choices_by_scores_need_scores(tmp_path, runs):
    folder, _, _ = runs
    words = ["detect", "choose", folder / "first", "-o", tmp_path / "choices.jsonl"]
    missing = CliRunner().invoke(app, [*map(str, words), "--scores", str(tmp_path / "none.jsonl")])
    assert "none.jsonl" in str(missing.exception)
    output = command(*words, "--strategy", "majority")
    assert "majority, of 24 questions" in output
    assert "done before" in command(*words, "--strategy", "majority")
