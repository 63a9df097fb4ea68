"""The three benchmarks as tasks: the user's file in, one sample per question, our prompt, our judge."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from eclose.errors import RecordError, UserError
from eclose.files.jsonl import unwrap_records
from eclose.integrations.inspect.samples import instance_from_sample, parse_score_labels
from eclose.integrations.inspect.tasks import hotpotqa_task, musique_task, two_wiki_task
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.readers.load import scan_instances
from tests.integrations.inspect.running import WARNINGS, judge_at, planted, run, world

pytestmark = WARNINGS

FILES = [
    (hotpotqa_task, "tiny_hotpotqa.json"),
    (hotpotqa_task, "hotpotqa_validation_hf_50.jsonl"),
    (two_wiki_task, "tiny_2wikimultihopqa.json"),
    (musique_task, "musique_ans_train_50.jsonl"),
]


@pytest.mark.parametrize(("task", "name"), FILES)
def test_one_sample_per_question_by_its_id(task, name, qa):
    inspect_task = task(str(qa / name))
    instances = {instance.id: instance for instance in unwrap_records(scan_instances(qa / name))}
    assert [sample.id for sample in inspect_task.dataset] == list(instances)
    for sample in inspect_task.dataset:
        instance = instances[sample.id]
        assert (sample.input, sample.target) == (instance.question, list(instance.accepted_answers))
        assert instance_from_sample(sample.id, "", [], sample.metadata) == instance
    assert f"= {len(instances)} accepted" in inspect_task.metadata["questions"]
    assert inspect_task.metadata["prompt"] == ResponsePrompt().hash


def test_duplicates_are_counted_and_what_is_wrong_raises(qa, tmp_path):
    lines = (qa / "tiny_musique_ans.jsonl").read_text().splitlines()
    twice = tmp_path / "twice.jsonl"
    twice.write_text("\n".join([*lines, lines[0]]))
    assert "1 rejected (duplicate 1)" in musique_task(str(twice)).metadata["questions"]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("\n".join([*lines, '{"id": "x", "paragraphs": 7}']))
    with pytest.raises(RecordError):
        musique_task(str(wrong))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(UserError):
        musique_task(str(empty))


def as_hotpot(instance):
    """A question of the world in HotpotQA's layout."""
    context = [[passage.title, [passage.text]] for passage in instance.evidence]
    return {
        "_id": instance.id,
        "question": instance.question,
        "answer": instance.reference_answer,
        "context": context,
        "supporting_facts": [[context[0][0], 0]],
        "type": "bridge",
        "level": "easy",
    }


@pytest.mark.slow
def test_a_task_from_a_file_to_the_planted_labels_over_http(tmp_path, monkeypatch):
    """Both the model under test and its judge are asked over HTTP, through Inspect's provider for such servers."""
    cases = planted(5)
    file = tmp_path / "questions.json"
    file.write_text(json.dumps([as_hotpot(instance) for instance, _ in cases]))
    requests = []
    with world(cases, monkeypatch=monkeypatch, seen=requests) as server:
        judge, model = judge_at(server), judge_at(server)
        task = hotpotqa_task(str(file), judge, demonstrations=1, order="question_first", max_new_tokens=700)
        log = run(task, tmp_path, judge, model, model=model)
    assert log.status == "success"
    assert (log.eval.task, log.eval.model) == ("eclose/hotpotqa", "openai-api/world/world")
    assert log.results.headline.score == "TRR"
    truth = {instance.id: broken.verdict for instance, broken in cases}
    assert {sample.id: parse_score_labels(sample.scores["lgg"].value) for sample in log.samples} == truth
    prompt = ResponsePrompt(1, PromptOrder.QUESTION_FIRST)
    sent_messages = {json.dumps(list(request.messages)) for request in requests}
    assert sent_messages == {json.dumps(prompt.messages(instance.question, instance.evidence)) for instance, _ in cases}
    assert {(request.max_tokens, request.temperature) for request in requests} == {(700, 0.0)}
