"""Scoring a whole run in this process: every response accounted for, resumed after a stop, and provenance kept."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from eclose.detectors.entailment import (
    ClosureDetector,
    PairPlan,
    StepLabels,
    StepSupportDetector,
    score_pairs_by_length,
)
from eclose.detectors.entailment_models import EntailmentModel, find_entailment_model
from eclose.detectors.local_run import make_pair_queue, read_step_labels, score_responses_locally
from eclose.detectors.scores import DetectorScore, Unscored
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import read_records, write_records
from eclose.files.manifest import Manifest, hash_files, read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.readers.response_tasks import ResponseTask
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, Trace
from tests.detectors.tiny_models import save

pytestmark = pytest.mark.torch

QUESTIONS = [
    Instance(
        f"q{number}",
        f"Who built mill {number}?",
        (Passage("a", "Mill", f"Ada {number} built it. It was old."), Passage("b", "Eve", "Eve was born in Lund.")),
    )
    for number in range(6)
]
RESPONSES = [
    Response(
        f"r{number}",
        f"q{number % 6}",
        Trace.of(*([f"Ada {number} built it."] * (number % 3)), "Eve sold it."),
        f"Ada {number}" if number % 5 else None,
    )
    for number in range(20)
] + [Response("empty", "q1", Trace(()), "Ada")]
JUDGMENTS = [
    Judgment(
        response.id,
        "judge-1",
        tuple(StepJudgment(substantive=index > 0 or response.id == "r3") for index in range(len(response.trace))),
    )
    for response in RESPONSES
    if response.id != "r7"
]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_records(folder / "instances.jsonl", QUESTIONS)
    write_records(folder / "responses.jsonl", RESPONSES)
    write_records(folder / "judgments.jsonl", JUDGMENTS)
    return folder


@pytest.fixture(scope="module")
def ref(tmp_path_factory):
    return find_entailment_model(str(save(tmp_path_factory.mktemp("weights") / "nli", "roberta", positions=120)))


def execute(*arguments, **settings):
    return asyncio.run(score_responses_locally(*arguments, **settings))


def scores_of(path):
    return {record.response_id: record for record in read_records(path, DetectorScore)}


def one_by_one(detector, labels=None):
    """Every response planned and scored alone."""
    model, questions = detector.model.load(), {question.id: question for question in QUESTIONS}
    records = {}
    for response in RESPONSES:
        task = ResponseTask(response.id, questions[response.instance_id], response)
        plan = detector.plan_pairs(task, (labels or {}).get(response.id), model)
        if isinstance(plan, PairPlan):
            plan = plan.conclude([score_pairs_by_length(model, [pair])[0] for pair in plan.pairs])
        records[response.id] = plan
    return records


def same(records, expected):
    assert records.keys() == expected.keys()
    for name, record in records.items():
        assert record.unscored == expected[name].unscored
        assert record.score == (None if record.score is None else pytest.approx(expected[name].score, abs=1e-5))
    return True


def test_closure_of_a_run(run, ref):
    detector = ClosureDetector(model=ref)
    result = execute(run, detector)
    assert result.stage.out == run / "scores-closure.jsonl"
    records = scores_of(run / "scores-closure.jsonl")
    assert same(records, one_by_one(detector))
    reasons = Counter(record.unscored for record in records.values())
    assert reasons == {None: 16, Unscored.NO_ANSWER: 4, Unscored.NO_TRACE: 1}
    assert len({record.score for record in records.values()}) > 10
    assert {record.model for record in records.values()} == {ref.name}
    manifest = read_manifest(run / "scores-closure.jsonl.manifest.json")
    assert manifest.counts == RecordCounts(21, 21)
    assert manifest.settings["model"] == ref.name
    assert set(manifest.inputs) == {"instances.jsonl", "responses.jsonl"}


def test_support_of_a_run_takes_the_steps_from_its_judgments(run, ref):
    detector = StepSupportDetector(model=ref)
    execute(run, detector)
    records = scores_of(run / "scores-alignscore.jsonl")
    assert same(records, one_by_one(detector, read_step_labels(run / "judgments.jsonl")))
    assert records["r7"].unscored is Unscored.NO_STEP_LABELS  # it was not judged
    assert records["r6"].unscored is Unscored.NO_SUBSTANTIVE_STEP  # its only step is the first
    assert records["r3"].score is not None
    assert records["empty"].unscored is Unscored.NO_TRACE
    assert records["r5"].details["step_labels"] == "judge-1"
    assert "judgments.jsonl" in read_manifest(run / "scores-alignscore.jsonl.manifest.json").inputs


@pytest.mark.parametrize("settings", [{"batch_tokens": 1, "responses": 1}, {"batch_tokens": 200, "responses": 7}])
def test_batches_change_no_score(settings, run, ref, tmp_path):
    detector = StepSupportDetector(model=ref)
    execute(run, detector)
    execute(run, detector, out=tmp_path / "other" / "scores.jsonl", **settings)
    assert same(scores_of(tmp_path / "other" / "scores.jsonl"), scores_of(run / "scores-alignscore.jsonl"))


def test_the_order_of_the_responses_changes_no_score(run, ref, tmp_path):
    detector = ClosureDetector(model=ref)
    execute(run, detector)
    before = scores_of(run / "scores-closure.jsonl")
    write_records(run / "responses.jsonl", reversed(RESPONSES))
    execute(run, detector, out=tmp_path / "again.jsonl")
    after = scores_of(tmp_path / "again.jsonl")
    assert list(after) == list(before)
    assert same(after, before)


def test_responses_share_batches(run, ref, monkeypatch):
    sizes = []
    whole = EntailmentModel.score_batch
    monkeypatch.setattr(
        EntailmentModel, "score_batch", lambda self, batch: (sizes.append(len(batch)), whole(self, batch))[1]
    )
    execute(run, ClosureDetector(model=ref))
    assert sum(sizes) == 16
    assert len(sizes) <= 4


def test_a_stopped_run_goes_on_where_it_was(run, ref, monkeypatch):
    detector, scored = ClosureDetector(model=ref), []
    whole = EntailmentModel.score_batch

    def fail_later(self, batch):
        if len(scored) >= 8:
            raise UserError("the machine is going down.")
        scored.extend(batch)
        return whole(self, batch)

    monkeypatch.setattr(EntailmentModel, "score_batch", fail_later)
    with pytest.raises(UserError, match="going down"):
        execute(run, detector, responses=4)
    assert not (run / "scores-closure.jsonl").exists()
    first = len(scored)
    assert first >= 8
    again = []
    monkeypatch.setattr(
        EntailmentModel, "score_batch", lambda self, batch: (again.extend(batch), whole(self, batch))[1]
    )
    result = execute(run, detector)
    assert not result.again
    assert len(again) == 16 - first
    assert not set(again) & set(scored)
    assert same(scores_of(run / "scores-closure.jsonl"), one_by_one(detector))


def test_a_finished_run_loads_no_model(run, ref, monkeypatch):
    detector = ClosureDetector(model=ref)
    execute(run, detector)
    monkeypatch.setattr(type(ref), "load", lambda _: pytest.fail("loaded again"))
    assert execute(run, detector).again


def test_scores_of_another_model_are_not_mixed_in(run, ref, tmp_path):
    execute(run, ClosureDetector(model=ref))
    other = find_entailment_model(str(save(tmp_path / "nli", "roberta", positions=120, seed=4)))
    with pytest.raises(UserError, match="was made from other inputs or with other settings"):
        execute(run, ClosureDetector(model=other))
    execute(run, ClosureDetector(model=other), out=run / "scores-closure-other.jsonl")
    assert {r.model for r in scores_of(run / "scores-closure-other.jsonl").values()} == {other.name}


def test_unusable_records_are_counted(run, ref):
    with (run / "responses.jsonl").open("ab") as file:
        file.write(b"no json\n")
    write_records(run / "more.jsonl", [replace(RESPONSES[0], id="lost", instance_id="q99"), RESPONSES[1]])
    with (run / "responses.jsonl").open("ab") as file:
        file.write((run / "more.jsonl").read_bytes())
    counts = execute(run, ClosureDetector(model=ref)).manifest.counts
    assert (counts.received, counts.accepted) == (24, 21)
    assert sum(counts.quarantined.values()) == 2
    assert sum(counts.rejected.values()) == 1


def test_labels_of_other_steps_quarantine_the_response_alone(run, ref):
    wrong = replace(JUDGMENTS[5], steps=(*JUDGMENTS[5].steps, StepJudgment(substantive=True)))
    write_records(run / "judgments.jsonl", [*JUDGMENTS[:5], wrong, *JUDGMENTS[6:]])
    counts = execute(run, StepSupportDetector(model=ref)).manifest.counts
    assert counts.accepted == 20
    assert sum(counts.quarantined.values()) == 1
    line = json.loads((run / "scores-alignscore.jsonl.quarantined.jsonl").read_text())
    assert "judge-1 labelled" in line["error"]


def test_judgments_must_exist_and_belong_to_the_responses(run, ref, tmp_path):
    detector = StepSupportDetector(model=ref)
    (run / "judgments.jsonl").rename(tmp_path / "people.jsonl")
    with pytest.raises(UserError, match=r"no such file.*eclose judge"):
        execute(run, detector)
    inputs = hash_files([run / "instances.jsonl", run / "responses.jsonl"])
    outputs = hash_files([tmp_path / "people.jsonl"])
    Manifest("judge", {}, inputs, outputs, RecordCounts(20, 20)).write(tmp_path / "people.jsonl.manifest.json")
    execute(run, detector, judgments=tmp_path / "people.jsonl")
    write_records(run / "responses.jsonl", RESPONSES[:10])
    with pytest.raises(UserError, match=r"responses\.jsonl is not the file that people\.jsonl was made from"):
        execute(run, detector, judgments=tmp_path / "people.jsonl", out=tmp_path / "s.jsonl")
    execute(run, detector, judgments=tmp_path / "people.jsonl", out=tmp_path / "s.jsonl", allow_stale=True)
    with pytest.raises(SettingError, match="at least 1"):
        execute(run, detector, batch_tokens=0)


def test_two_opinions_of_one_response_are_refused(run):
    assert read_step_labels(run / "judgments.jsonl")["r4"] == StepLabels("judge-1", (False, True))
    write_records(run / "judgments.jsonl", [*JUDGMENTS, JUDGMENTS[0]])
    assert len(read_step_labels(run / "judgments.jsonl")) == len(JUDGMENTS)
    write_records(run / "judgments.jsonl", [*JUDGMENTS, replace(JUDGMENTS[0], judge="judge-2")])
    with pytest.raises(RecordError, match="judged twice, with different steps"):
        read_step_labels(run / "judgments.jsonl")


def test_an_error_reaches_every_response_of_the_batch(ref):
    class Broken:
        def score_batch(self, _):
            raise UserError("out of memory.")

    async def score_all():
        model = ref.load()
        queue = make_pair_queue(Broken(), 100)
        pairs = [(model.encode_pair("a", str(number)),) for number in range(5)]
        return await asyncio.gather(*map(queue.submit, pairs), return_exceptions=True)

    assert [str(error) for error in asyncio.run(score_all())] == ["out of memory."] * 5
