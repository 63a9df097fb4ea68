"""Tests for scoring a run with a verifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eclose
import eclose_train
from eclose import Instance, Response, Trace
from eclose.detectors.plugins import BATCH_RESPONSES
from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.files.jsonl import read_records, write_records
from tests.verifier.verifier_families import make_family

if TYPE_CHECKING:
    from pathlib import Path

FAMILY = make_family()


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verifier")
    write_records(folder / "families.jsonl", [make_family(f"f{number}") for number in range(10)])
    return eclose_train.train_verifier(folder / "families.jsonl", folder / "verifier").folder


def write_run(folder: Path, responses: list[Response]) -> Path:
    write_records(folder / "instances.jsonl", [FAMILY.source])
    write_records(folder / "responses.jsonl", responses)
    return folder


def make_response(name: str, answer: str | None = "Toronto", trace: Trace | None = None) -> Response:
    return Response(name, FAMILY.source.id, FAMILY.gold.trace if trace is None else trace, answer)


def test_the_score_is_the_smallest_of_the_heads(tmp_path: Path, verifier: Path) -> None:
    run = write_run(tmp_path, [make_response("right"), make_response("wrong", "Cairo")])
    eclose.detect(run, detector="verifier", verifier=verifier)
    right, wrong = read_records(run / "scores-verifier.jsonl", DetectorScore)

    assert right.detector is DetectorKind.VERIFIER
    assert right.model.startswith("linear@")
    assert set(right.details) == {"support", "alignment", "closure"}
    assert right.score == min(right.details.values())
    assert wrong.details["closure"] < right.details["closure"]
    assert wrong.details["alignment"] == right.details["alignment"]


def test_responses_without_answer_or_trace_have_a_reason_and_are_counted(tmp_path: Path, verifier: Path) -> None:
    run = write_run(
        tmp_path, [make_response("a"), make_response("b", answer=None), make_response("c", trace=Trace.of())]
    )
    result = eclose.detect(run, detector="verifier", verifier=verifier)
    scores = {record.response_id: record for record in read_records(run / "scores-verifier.jsonl", DetectorScore)}

    assert result.manifest.counts.accepted == 3
    assert result.manifest.calls["unscored"] == {"no answer": 1, "no trace": 1}
    assert (scores["b"].score, scores["b"].unscored) == (None, Unscored.NO_ANSWER)
    assert set(scores["b"].details) == {"support", "alignment"}
    assert scores["c"].unscored is Unscored.NO_TRACE


def test_responses_of_several_batches_are_all_scored_in_order(tmp_path: Path, verifier: Path) -> None:
    names = [f"r{number:04}" for number in range(2 * BATCH_RESPONSES + 3)]
    run = write_run(tmp_path, [make_response(name) for name in names])
    eclose.detect(run, detector="verifier", verifier=verifier)

    assert [record.response_id for record in read_records(run / "scores-verifier.jsonl", DetectorScore)] == names


def test_records_that_cannot_be_used_are_counted_and_kept_out(tmp_path: Path, verifier: Path) -> None:
    stray = Response("stray", "other question", FAMILY.gold.trace, "Toronto")
    run = write_run(tmp_path, [make_response("a"), stray, make_response("a")])
    result = eclose.detect(run, detector="verifier", verifier=verifier)

    assert result.manifest.counts.received == 3
    assert result.manifest.counts.rejected == {"duplicate": 1}
    assert result.manifest.counts.quarantined == {"no such question": 1}
    assert list(result.manifest.funnel) == ["questions of instances.jsonl"]


def test_a_finished_run_is_not_repeated_and_other_responses_are_refused(tmp_path: Path, verifier: Path) -> None:
    run = write_run(tmp_path, [make_response("a")])
    eclose.detect(run, detector="verifier", verifier=verifier)

    assert eclose.detect(run, detector="verifier", verifier=verifier).again
    write_run(tmp_path, [make_response("b")])
    with pytest.raises(eclose.UserError, match="other inputs"):
        eclose.detect(run, detector="verifier", verifier=verifier)
    forced = eclose.RunOptions(force=True)
    assert not eclose.detect(run, detector="verifier", verifier=verifier, options=forced).again


def test_a_verifier_and_its_folder_belong_together(tmp_path: Path, verifier: Path) -> None:
    run = write_run(tmp_path, [make_response("a")])

    with pytest.raises(eclose.SettingError, match="needs the folder of a trained verifier"):
        eclose.detect(run, detector="verifier")
    with pytest.raises(eclose.SettingError, match="and no other"):
        eclose.detect(run, detector="closure", verifier=verifier)
    with pytest.raises(eclose.SettingError, match="needs the model behind it"):
        eclose.detect(run, detector="closure")


def test_no_question_has_scores_of_another(tmp_path: Path, verifier: Path) -> None:
    other = Instance("q2", "Who died in Malibu?", FAMILY.source.evidence, "Ada")
    write_records(tmp_path / "instances.jsonl", [FAMILY.source, other])
    # Neighbours with different questions: the question kept from one response must not serve the next.
    responses = [make_response("a"), Response("b", "q2", FAMILY.gold.trace, "Toronto"), make_response("c")]
    write_records(tmp_path / "responses.jsonl", responses)
    eclose.detect(tmp_path, detector="verifier", verifier=verifier)
    first, second, third = read_records(tmp_path / "scores-verifier.jsonl", DetectorScore)

    assert first.details == third.details
    assert second.details["alignment"] < first.details["alignment"]
