"""From planted failures over a model server to the report: an exact model behind each detector."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest

from eclose.calls.client import CallSettings
from eclose.detectors.run import detect_responses
from eclose.detectors.scores import DetectorKind
from eclose.detectors.settings import ChatDetectorSettings
from eclose.detectors.study_statistics import StudySettings
from eclose.errors import UserError
from eclose.files.jsonl import write_records
from eclose.report.detectors.write import write_detector_report
from eclose.values.verdict import FailureClass, TraceGroup
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

KINDS = (DetectorKind.STATEMENT_SUPPORT, DetectorKind.ALIGNMENT)
FEW = StudySettings(resamples=20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with planted failures, judged by the oracle and scored over HTTP."""
    folder = tmp_path_factory.mktemp("planted")
    planted = [
        (item.instance, broken.response)
        for item in islice(make_world_items("short-easy", 3), 8)
        for plan in (FailurePlan(), *FAILURE_PLANS[:13])
        if (broken := break_response(item, plan, "x")) is not None
    ]
    judgments = [judge_by_oracle(instance, response) for instance, response in planted]
    write_records(folder / "instances.jsonl", {instance.id: instance for instance, _ in planted}.values())
    write_records(folder / "responses.jsonl", [response for _, response in planted])
    write_records(folder / "judgments.jsonl", judgments)
    with ModelServerThread(build_world_handlers()) as server:
        for kind in KINDS:
            settings = ChatDetectorSettings(detector=kind)
            asyncio.run(detect_responses(folder, server.base_url, settings, CallSettings(unpriced=True)))
    return folder, [judgment.verdict for judgment in judgments]


@pytest.mark.slow
def test_exact_detectors_see_what_their_dependency_shows(run, tmp_path):
    folder, verdicts = run
    paths = write_detector_report(folder, [folder / f"scores-{kind}.jsonl" for kind in KINDS], tmp_path, settings=FEW)
    data = json.loads(paths["detectors.json"].read_text())
    groups = [verdict.trace_group for verdict in verdicts]
    assert data["groups"]["reliable"] == groups.count(TraceGroup.RELIABLE) >= 8
    deviations = [verdict for verdict in verdicts if verdict.in_gap]
    assert data["groups"]["path_deviation"] == sum(
        verdict.failure_class is FailureClass.PATH_DEVIATION for verdict in deviations
    )
    assert data["groups"]["path_deviation"] > 0
    support, alignment = data["detectors"]
    # Alignment sees the question alone: it finds every deviation, and no decoupled answer.
    assert alignment["groups"]["path_deviation"]["auroc"]["value"] == 1
    assert alignment["groups"]["path_deviation"]["recall"]["value"] == 1
    assert alignment["groups"]["answer_decoupling"]["auroc"]["value"] == 0.5
    assert alignment["groups"]["answer_decoupling"]["recall"]["value"] == 0
    # The statement made of a decoupled answer is the one that no passage supports.
    assert support["groups"]["answer_decoupling"]["auroc"]["value"] == 1
    assert support["groups"]["reliable"]["mean"]["value"] == 1
    assert support["false_positive_rate"]["value"] == 0
    for row in data["counts"]:
        assert row["records"] == data["responses"] == len(verdicts)
        assert row["unknown_responses"] == 0
    # The scores have manifests, so they are known to be of these responses.
    assert not any("scores" in notice for notice in data["notices"])


def test_scores_of_changed_responses_are_refused(run, tmp_path):
    folder, _ = run
    path = folder / "responses.jsonl"
    text = path.read_text()
    path.write_text(text + text.splitlines()[0] + "\n")
    try:
        with pytest.raises(UserError, match="Score the responses again"):
            write_detector_report(folder, folder / "scores-ragas.jsonl", tmp_path, settings=FEW)
    finally:
        path.write_text(text)
