"""What agents of real packages export is read whole: the question, every passage, each claim, and the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eclose.errors import RecordError
from eclose.readers.load import scan_instances, scan_recorded_responses
from eclose.readers.spans.documents import list_tool_documents
from eclose.reading.response import read_response
from tests.readers.spans.files import ANSWER, encode_attributes, make_trace, wrap_spans, write_lines

FOLDER = Path(__file__).parents[1] / "fixtures" / "exports"
QUESTION = "Where did the person who wrote the novel Sleeping Pilgrim study?"
BEGINNINGS = ["Dorothea Fiala was", "Petra Sorel (born", "Sleeping Pilgrim is", "The Railway of"]
CLAIMS = (
    "Sleeping Pilgrim was written by Petra Sorel.",
    "Norholt University is the university where Petra Sorel studied.",
    "It follows that the university of the person who wrote the book Sleeping Pilgrim is Norholt University.",
)
# What a crew puts out lacks what its model said beside calls, or its last message.
EXPORTED = {"crewai-tools": CLAIMS[1:], "crewai-log": CLAIMS[:1]}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_export_of_a_real_package_is_read_whole(path):
    question, *repeated = scan_instances(path)
    assert question.value is not None, question
    assert all(record.rejected == "duplicate" for record in repeated)
    assert question.value.question == QUESTION
    texts = sorted(passage.text for passage in question.value.evidence)
    assert [text[: len(beginning)] for text, beginning in zip(texts, BEGINNINGS, strict=True)] == BEGINNINGS
    for response in scan_recorded_responses(path):
        assert response.value is not None, response
        assert response.value.trace.texts == EXPORTED.get(path.stem, CLAIMS)
        assert response.value.answer == "Norholt University"


@pytest.mark.parametrize("name", ["smolagents-steps", "openai-agents-new-items"])
def test_question_beside_an_agents_result_is_needed(name, tmp_path):
    record = json.loads((FOLDER / f"{name}.jsonl").read_text("utf-8"))
    del record["question"]
    path = write_lines(tmp_path / "records.jsonl", record)
    with pytest.raises(RecordError, match="no key that holds evidence"):
        list(scan_instances(path))


def test_result_of_a_tool_that_takes_the_answer_ends_no_trace():
    messages = [
        {"role": "assistant", "tool_calls": [{"name": "search", "arguments": {"query": "Ada"}}]},
        {"role": "tool", "name": "search", "content": "Ada was born in Lund."},
        {
            "role": "assistant",
            "content": "Ada was born in Lund.",
            "tool_calls": [{"name": "final_result", "arguments": {"city": "Lund"}}],
        },
        {"role": "tool", "name": "final_result", "content": "Final result processed."},
    ]
    reading = read_response(messages)
    assert reading.answer == "Lund"
    assert not reading.ends_in_result


def test_answer_of_an_agent_that_calls_tools_is_in_its_last_call():
    call = {"function": {"name": "final_answer", "arguments": {"answer": "Lund"}}}
    step = {"step_number": 1, "model_output": "Ada was born in Lund.", "tool_calls": [call], "is_final_answer": True}
    reading = read_response({"steps": [{"task": "Where?"}, {**step, "action_output": None, "observations": "Lund"}]})
    assert (reading.steps, reading.answer) == (("Ada was born in Lund.",), "Lund")


def test_crew_that_is_told_to_call_the_next_tool_keeps_what_the_tools_returned():
    log = "Thought: {}\nAction: search\nAction Input: {{}}\nObservation: {}"
    messages = [
        {"role": "user", "content": "Current Task: Where was the designer born?"},
        {"role": "assistant", "content": log.format("Let me search.", "Ada designed it.")},
        {"role": "user", "content": "Analyze the tool result."},
        {"role": "assistant", "content": log.format("Ada designed it.", "Ada was born in Lund.")},
        {"role": "user", "content": "Analyze the tool result."},
    ]
    reading = read_response({"raw": "Lund", "tasks_output": [{"messages": []}, {"messages": messages}]})
    assert (reading.steps, reading.answer) == (("Ada designed it.",), "Lund")
    assert [output.value for output in reading.evidence] == ["Ada designed it.", "Ada was born in Lund."]


def test_passages_that_got_new_ids_from_their_store_make_the_same_question(tmp_path):
    lines = []
    for trace in (1, 2):
        root, retriever, *rest = sorted(make_trace(trace), key=lambda span: span["name"] != "qa")
        retriever["attributes"] += encode_attributes({"retrieval.documents.0.document.id": f"chunk-{trace}"})
        lines.append(wrap_spans(root, retriever, *rest))
    path = write_lines(tmp_path / "traces.jsonl", *lines)
    first, second = scan_instances(path)
    assert (first.value.evidence[0].id, second.rejected, second.error) == ("chunk-1", "duplicate", None)
    assert len({record.value.instance_id for record in scan_recorded_responses(path)}) == 1


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        (
            str([{"title": "Ada Rowe", "text": "Ada's home is Lund."}, {"text": "Gone."}]),
            ["Ada's home is Lund.", "Gone."],
        ),
        (r"[{'text': '\d+ seats'}]", [r"\d+ seats"]),
        ("[{'text': 'cut off", ["[{'text': 'cut off"]),
        ("[{not a list}]", ["[{not a list}]"]),
        ("[{'text': print('x')}]", ["[{'text': print('x')}]"]),
    ],
)
def test_list_of_documents_that_python_printed_is_one_passage_each(output, texts):
    assert [chunk.text for chunk in list_tool_documents(output)] == texts


def test_only_text_of_an_output_is_the_answer_beside_a_list_of_sources(tmp_path):
    output = json.dumps({"reply_text": ANSWER, "sources": [{"url": "a"}]})
    path = write_lines(tmp_path / "traces.jsonl", wrap_spans(*make_trace(output__value=output)))
    (response,) = scan_recorded_responses(path)
    assert (response.value.trace.texts, response.value.answer) == (("Ada Rowe designed the bridge.",), "Lund")
