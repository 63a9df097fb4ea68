"""What ``judge`` and ``evaluate`` are given is read by the same functions, or refused with what to write."""

from __future__ import annotations

import asyncio
import json

import pytest

import eclose
from eclose.api.judge import read_case
from eclose.api.results import _describe_abstentions
from eclose.calls.model import Decoding, FinishReason, Reply, TokenUsage
from eclose.calls.structured import EARLY_DECISION, ask_structured
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.errors import RecordError, SettingError, UserError
from eclose.prompts.structured import PromptWithSchema
from eclose.readers.import_settings import ImportSettings, TraceMode
from eclose.readers.judged_run import JudgedCase
from eclose.readers.load import scan_instances, scan_recorded_responses
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, Trace
from tests.readers.spans.files import write_lines

CONTEXTS = ["The Lantern is a novel by Ada Quist.", "Ada Quist was born in Lund."]
ROW = {"user_input": "Where was the author born?", "retrieved_contexts": CONTEXTS}
QUESTION = Instance("q", ROW["user_input"], tuple(Passage(str(n), "", text) for n, text in enumerate(CONTEXTS)))
CALL = [
    {"role": "assistant", "content": "Let me search.", "tool_calls": []},
    {"role": "tool", "content": "Lund lies in Sweden."},
    {"role": "assistant", "content": "The novel is hers.\nAnswer: Lund"},
]


@pytest.mark.parametrize(
    "text",
    [
        "1. The Lantern is by Ada Quist.\n2. She was born in Lund.\nFinal answer: Lund",
        "The Lantern is by Ada Quist. She was born in Lund.\nAnswer: Lund",
        "<think>The Lantern is by Ada Quist. She was born in Lund.</think>\nLund",
        "The Lantern is by Ada Quist. So the answer is Lund.",
        "Thought: I search.\nObservation: Lund lies in Sweden.\nThought: It is Lund.\nFinal answer: Lund",
        "Lund",
        "She was born in Lund. It lies in Sweden.",
    ],
)
def test_judge_reads_a_text_as_evaluate_does(tmp_path, text):
    path = write_lines(tmp_path / "rows.jsonl", {**ROW, "response": text})
    (row,) = (record.value for record in scan_recorded_responses(path))
    (question,) = (record.value for record in scan_instances(path))
    read, response = read_case(QUESTION, text)
    assert (response.trace, response.answer, response.answer_lines) == (row.trace, row.answer, row.answer_lines)
    assert response.completion == row.completion
    assert [passage.text for passage in read.evidence] == [passage.text for passage in question.evidence]
    assert response.instance_id == read.id


@pytest.mark.parametrize("question", [QUESTION, {**ROW, "id": "q"}])
def test_judge_takes_messages_and_rows(question):
    for response in (
        [{"role": "user", "content": QUESTION.question}, *CALL],
        {"choices": [{"message": {"role": "assistant", "content": "The novel is hers.\nAnswer: Lund"}}]},
    ):
        read, answered = read_case(question, response)
        assert (answered.trace.texts, answered.answer) == (("The novel is hers.",), "Lund")
        assert answered.instance_id == read.id
        assert ("Lund lies in Sweden." in read.evidence[-1].text) is isinstance(response, list)


def test_judge_takes_a_response_and_its_fields():
    response = Response("r", "q", Trace.of("She was born in Lund."), "Lund")
    fields = {"id": "r", "instance_id": "q", "trace": {"steps": [{"text": "She was born in Lund."}]}, "answer": "Lund"}
    instance = {"id": "q", "question": QUESTION.question, "evidence": []}
    assert read_case(QUESTION, response) == read_case(QUESTION, fields) == (QUESTION, response)
    assert read_case(instance, response)[0] == Instance("q", QUESTION.question, ())


def test_question_without_passages_is_refused_with_the_usage():
    with pytest.raises(
        SettingError, match=r"instance: is of type str\. Give a question with its passages: eclose\.judge"
    ):
        eclose.judge("question", "answer", judge="openai/m")
    with pytest.raises(SettingError, match="response: is of type int"):
        read_case(QUESTION, 3)
    with pytest.raises(RecordError, match=r"retrieved_contexts: .* is one text\. Write \[text\]"):
        read_case({**ROW, "retrieved_contexts": " ".join(CONTEXTS)}, "Lund")
    with pytest.raises(RecordError, match="holds no answer"):
        read_case(QUESTION, [{"role": "user", "content": QUESTION.question}])


def test_response_of_an_unknown_shape_is_an_error_that_names_its_keys(tmp_path):
    record = {
        "messages": [{"role": "user", "content": "Where?"}],
        "response": {"verdicts": []},
        "documents": CONTEXTS,
    }
    (read,) = scan_recorded_responses(write_lines(tmp_path / "a.jsonl", record))
    assert read.rejected is None
    assert "Keys seen: 'verdicts'" in str(read.error)


def test_trace_mode_is_taken_by_its_name():
    assert ImportSettings(trace="marked").trace is TraceMode.MARKED
    assert ImportSettings(trace="marked").identity == {"trace": "marked"}
    assert ImportSettings(trace="prose").identity == ImportSettings().identity == {}
    with pytest.raises(SettingError, match="trace: 'verse' is none of auto, marked, prose"):
        ImportSettings(trace="verse")


@pytest.mark.parametrize("name", ["id", "query_id", "request_id", "custom_id", "trace_id"])
def test_id_of_a_row_is_kept(tmp_path, name):
    path = write_lines(tmp_path / "a.jsonl", {**ROW, "response": "Lund", name: "req-7"})
    (question,) = scan_instances(path)
    (response,) = scan_recorded_responses(path)
    assert question.value.id == response.value.instance_id == "req-7"


def test_table_of_texts_is_refused_with_how_references_are_joined(tmp_path):
    path = tmp_path / "golden.csv"
    path.write_text("question,reference\nWhere?,Lund\n")
    with pytest.raises(UserError, match="References in a table are joined to responses by their question"):
        list(scan_instances(path))


class OneReply:
    """Gives its replies in order, one for each attempt."""

    name = "m"

    def __init__(self, *replies):
        self.replies = replies

    async def complete(self, request):
        return Reply(json.dumps(self.replies[request.attempt]), FinishReason.STOP, TokenUsage(1, 1))


EARLY = {"closed": True, "reason": "It does."}
LATE = {"reason": "It does.", "closed": True}


@pytest.mark.parametrize(
    "early",
    [EARLY, {"closure": EARLY}, {"steps": [{"verdict": "sound", "reason": ""}]}, {"steps": {"1": {"a": EARLY}}}],
)
def test_verdict_before_its_reason_is_refused_and_asked_again(early):
    prompt = PromptWithSchema("q", ({"role": "user", "content": "x"},), "sha256:0", {})

    def ask(*replies):
        model = OneReply(*replies)
        return asyncio.run(ask_structured(model, prompt, dict, decoding=Decoding(), attempts=len(replies)))

    assert ask(early, LATE).value == LATE
    refused = ask(early)
    assert (refused.value, refused.reason) == (None, EARLY_DECISION)
    assert "is written before its reason" in refused.problem


ABSTENTION = "Unfortunately, I couldn’t find this in the handbook."


def test_abstention_with_sufficient_passages_is_not_reliable_in_silence():
    steps = (StepJudgment(substantive=True, sound=True),)
    judgment = Judgment("r", "j", steps, aligned=True, closed=True, evidence_sufficient=True)
    response = Response("r", "q", Trace.of("The handbook gives no term."), ABSTENTION)
    case = JudgedCase(QUESTION, response, judgment)
    (notice,) = _describe_abstentions([case])
    assert notice.startswith("1 response reliable by L, A and C whose answer is an abstention")
    assert "abstention" in describe_response_failure(case)
    lacking = JudgedCase(
        QUESTION, response, Judgment("r", "j", steps, aligned=True, closed=True, evidence_sufficient=False)
    )
    assert _describe_abstentions([lacking]) == ()
    assert "abstention" not in describe_response_failure(lacking)
