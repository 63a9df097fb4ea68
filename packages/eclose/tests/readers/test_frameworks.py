"""Records of chat APIs and frameworks give the same question, passages and response; damaged ones give a reason."""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from eclose.errors import RecordError, UserError
from eclose.readers.layouts import RecordLayout, detect_record_layout
from eclose.readers.load import detect_file_layout, scan_instances, scan_recorded_responses
from eclose.readers.rag_rows import convert_tool_record

FOLDER = Path(__file__).parents[1] / "fixtures" / "messages"
QUESTION = "Where was the designer of the Alder Bridge born?"
TEXTS = [
    "The Alder Bridge was designed by Ada Rowe. It opened in 1931.",
    "Ada Rowe (1890-1954) was an engineer. She was born in Lund.",
]
# "I look for its designer." is a plan, and no step.
STEPS = ("Ada Rowe designed the Alder Bridge.", "Ada Rowe was born in Lund.")
LAYOUTS = {
    "haystack": RecordLayout.HAYSTACK,
    "langchain-chains": RecordLayout.LANGCHAIN,
    "langchain-dumpd": RecordLayout.MESSAGES,
    "langchain-intermediate-steps": RecordLayout.LANGCHAIN,
    "langchain-messages-to-dict": RecordLayout.MESSAGES,
    "langgraph-state": RecordLayout.MESSAGES,
    "llama-index": RecordLayout.LLAMA_INDEX,
    "openai-chat": RecordLayout.MESSAGES,
    "openai-responses": RecordLayout.MESSAGES,
}
RECORDS = [
    pytest.param(name, json.loads(line), id=f"{name}-{number}")
    for name in LAYOUTS
    for number, line in enumerate((FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
]


def test_every_fixture_is_read():
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(LAYOUTS)


@pytest.mark.parametrize(("name", "record"), RECORDS)
def test_records_of_real_packages_are_read_whole(name, record):
    assert detect_record_layout(record) is LAYOUTS[name]
    converted = convert_tool_record(record, LAYOUTS[name])
    assert converted.instance.question.strip() == QUESTION
    assert sorted(passage.text for passage in converted.instance.evidence) == sorted(TEXTS)
    titles = [passage.title.removesuffix(".txt") for passage in converted.instance.evidence]
    assert sorted(titles) == ["Ada Rowe", "Alder Bridge"]
    response = converted.response
    assert response is not None
    if response.answer == "Lund":
        # Of an agent that also thinks, what it says is the trace.
        assert response.trace.texts in (STEPS, STEPS[:1])
    else:
        assert response.answer is not None
        assert response.answer.startswith("The Alder Bridge was designed by Ada Rowe [1].")
        assert response.trace.texts[0] == "The Alder Bridge was designed by Ada Rowe [1]."
        assert response.reading.origin == "prose"


def test_the_model_is_named_where_the_record_has_it():
    sources = {
        name: [record.value.source for record in scan_recorded_responses(FOLDER / f"{name}.jsonl") if record.value]
        for name in ("langgraph-state", "langchain-dumpd", "openai-chat", "openai-responses", "llama-index")
    }
    models = {name: [source and source.model for source in named] for name, named in sources.items()}
    assert models == {
        "langgraph-state": ["gpt-test"],
        "langchain-dumpd": ["gpt-test"],
        "openai-chat": [None, "gpt-test"],
        "openai-responses": ["gpt-test", None],
        "llama-index": [None, None],
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_counts_in_are_counts_out(name):
    path = FOLDER / f"{name}.jsonl"
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert len(list(scan_instances(path))) == len(list(scan_recorded_responses(path))) == lines


def user(text="Who?"):
    return {"role": "user", "content": text}


def tool(content, **fields):
    return {"role": "tool", "tool_call_id": "c", "content": content, **fields}


ANSWER = {"role": "assistant", "content": "Ada."}


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('[{"text": "a"}, {"page_content": "b"}]', ["a", "b"]),
        ('{"results": [{"content": "a"}, {"snippet": "b"}], "query": "Who?"}', ["a", "b"]),
        ('{"results": [{"content": "a"}], "answer": "b"}', ["a", '{"answer": "b"}']),
        ('{"documents": [], "note": 1}\n', None),
        ('["a", "b"]', ["a", "b"]),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": '[{"text": "b"}]'}], ["a", "b"]),
        ('{"hits": {"hits": [{"_source": {"body": "a"}}]}}', ["a"]),
        ('{"born": "Lund"}', ['{"born": "Lund"}']),
        ("[not json", ["[not json"]),
        ("plain text", ["plain text"]),
    ],
)
def test_a_tool_result_with_a_list_of_documents_is_one_passage_each(content, texts):
    record = {"messages": [user(), tool(content), ANSWER]}
    if texts is None:
        with pytest.raises(RecordError, match="there are no documents"):
            convert_tool_record(record, RecordLayout.MESSAGES)
        return
    converted = convert_tool_record(record, RecordLayout.MESSAGES)
    assert [passage.text for passage in converted.instance.evidence] == texts


def test_documents_beside_the_messages_are_evidence():
    record = {"id": 7, "messages": [user(), ANSWER], "documents": [{"id": "d", "text": "a"}], "reference": "Ada"}
    converted = convert_tool_record(record, RecordLayout.MESSAGES)
    assert (converted.instance.id, converted.instance.reference_answer) == ("7", "Ada")
    assert [passage.id for passage in converted.instance.evidence] == ["d"]


def test_reasoning_and_tool_results_in_parts_of_messages_are_steps_and_evidence():
    record = {
        "messages": [
            user(),
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "I search."}, {"type": "tool_use", "id": "c"}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "Ada built it."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Ada."}], "reasoning_content": "It was Ada."},
        ]
    }
    converted = convert_tool_record(record, RecordLayout.MESSAGES)
    assert [passage.text for passage in converted.instance.evidence] == ["Ada built it."]
    assert converted.response is not None
    assert (converted.response.trace.texts, converted.response.answer) == (("It was Ada.",), "Ada.")
    assert converted.response.reading.origin == "hidden"
    assert [part.text for part in converted.response.reading.left_out] == ["I search."]


def test_the_log_of_a_react_agent_is_its_thought():
    action = {"tool": "s", "tool_input": "x", "log": "Thought: I search first.\nAction: s\nAction Input: x"}
    invoking = {"tool": "s", "tool_input": "x", "log": "\nInvoking: `s` with `x`\nresponded: Once more.\n\n"}
    record = {"input": "Who?", "output": "Ada.", "intermediate_steps": [[action, "a"], [invoking, "b"]]}
    converted = convert_tool_record(record, detect_record_layout(record))
    assert converted.response is not None
    # Both say what the agent is about to do, or claim nothing.
    assert converted.response.trace.texts == ("Once more.",)
    assert [passage.text for passage in converted.instance.evidence] == ["a", "b"]


def test_the_same_response_of_two_models_is_two_responses(tmp_path):
    reply = {"choices": [{"message": ANSWER}]}
    lines = [{"messages": [user(), tool("a")], "response": {**reply, "model": name}} for name in ("m1", "m2")]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    models = [record.value.source.model for record in scan_recorded_responses(path) if record.value]
    assert models == ["m1", "m2"]


DAMAGED = [
    ({"messages": []}, "holds a reply without its question"),
    ({"messages": [ANSWER, tool("a")]}, "messages: holds 0 messages of a person"),
    ({"messages": [user(), ANSWER]}, "there are no documents"),
    ({"messages": [user(), tool("a"), {"role": "robot", "content": "x"}]}, r"messages\[2\]: its type should be"),
    ({"messages": [user(None), tool("a"), ANSWER]}, "messages: "),
    ({"messages": [user([{"type": "image_url", "image_url": {}}]), ANSWER]}, r"messages\[0\]\.content\[0\]: is a part"),
    ({"messages": [user([1]), ANSWER]}, r"messages\[0\]\.content: should be a text"),
    ({"messages": [user(), ANSWER], "documents": [{"score": 1}]}, r"documents\[0\]: has no text"),
    ({"messages": [user(), ANSWER], "documents": 5}, "documents: should be a list"),
    ({"messages": [user()], "choices": [{"message": ANSWER}, {"message": ANSWER}]}, "choices: holds 2 replies"),
    ({"object": "chat.completion", "choices": [{"message": ANSWER}]}, "holds a reply without its question"),
    ({"object": "response", "output": [{"type": "message", "role": "assistant"}]}, "reply without its question"),
    ({"input": "Who?", "output": "Ada.", "intermediate_steps": [["a"]]}, r"intermediate_steps\[0\]: should be a pair"),
    (
        {"input": "Who?", "output": "Ada.", "intermediate_steps": [[{"log": 1}, "a"]]},
        r"steps\[0\]\[0\]\.log: should be",
    ),
    ({"input": "Who?", "output": "Ada.", "intermediate_steps": []}, "there are no documents"),
    ({"query": "Who?", "result": "Ada.", "source_documents": [None]}, r"source_documents\[0\]: has no text"),
    ({"query": "Who?", "response": "Ada.", "source_nodes": [{"node": {}}]}, r"source_nodes\[0\]: has no text"),
    ({"response": "Ada.", "source_nodes": [{"node": {"text": "a"}}]}, "query: is missing"),
    ({"query": "Who?", "response": 3, "source_nodes": [{"node": {"text": "a"}}]}, "response: "),
    ({"llm": {"replies": ["Ada."]}, "retriever": {"documents": [{"content": "a"}]}}, "query: is missing"),
    ({"query": "Who?", "llm": {"replies": ["a", "b"]}}, r"llm\.replies: holds 2"),
    ({"query": "Who?", "llm": {"replies": []}}, r"llm\.replies: holds 0"),
    ({"query": "Who?", "llm": {"replies": ["a"]}}, "there are no documents"),
    ({"builder": {"answers": [{"data": "a", "query": None, "documents": []}]}}, "query: is missing"),
]


@pytest.mark.parametrize(("record", "problem"), DAMAGED)
def test_a_damaged_record_is_set_aside_with_a_reason(record, problem, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    for scan in (scan_instances, scan_recorded_responses):
        (read,) = scan(path)
        assert read.value is None
        with pytest.raises(RecordError, match=problem):
            raise read.error


JUNK = [
    None, 1, "", "x", [], {}, [None], [1], {"a": 1}, "[", '{"a": [1]}', [{"role": "user"}],
    [{"type": "text", "text": 1}], [{"type": "reasoning", "summary": 1}], {"lc": 1, "kwargs": {}},
    {"type": "human", "data": {}},
]  # fmt: skip
KEYS = ("type", "role", "content", "messages", "output", "input", "choices", "results", "documents", "node", "text")


def list_paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from list_paths(item, (*path, key))


@pytest.mark.parametrize("seed", range(300))
def test_junk_anywhere_in_a_record_is_read_or_refused(seed):
    rng = random.Random(seed)
    record = copy.deepcopy(rng.choice(RECORDS).values[1])
    *parents, last = rng.choice(list(list_paths(record)))
    holder = record
    for key in parents:
        holder = holder[key]
    if isinstance(holder, dict) and rng.random() < 0.3:
        last = rng.choice(KEYS)
    holder[last] = copy.deepcopy(rng.choice(JUNK))
    # Any other exception would be a traceback on the command line.
    with suppress(RecordError):
        assert convert_tool_record(record, detect_record_layout(record)).instance.evidence


def test_damaged_records_do_not_stop_a_file(tmp_path):
    good = {"messages": [user(), tool("a"), ANSWER]}
    path = tmp_path / "log.jsonl"
    messages = [record for record, _ in DAMAGED if "messages" in record]
    path.write_text("".join(json.dumps(record) + "\n" for record in [good, *messages, {}, good]) + "{broken\n")
    records = list(scan_recorded_responses(path))
    assert len(records) == len(messages) + 4
    assert [record.rejected for record in records if record.error is None] == [None, "duplicate"]


@pytest.mark.parametrize("record", [{"messages": "hello"}, {"a": 1}, {"input": [1]}, {"llm": {"replies": "x"}}])
def test_what_is_no_log_names_the_mapping(record, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(UserError, match="--map question=PATH,answer=PATH,documents=PATH"):
        detect_file_layout(path)
