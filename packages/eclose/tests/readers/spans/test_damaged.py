"""Damaged and partial exports: each has a reason, none ends in a traceback, and every trace is accounted for."""

from __future__ import annotations

import gzip
import json
import random

import pytest

from eclose.errors import UserError
from eclose.files.outcome_counts import RecordCounter
from eclose.readers.import_settings import ImportSettings
from eclose.readers.load import detect_file_layout, scan_instances, scan_recorded_responses
from eclose.readers.spans import load
from tests.readers.spans.files import ANSWER, FIXTURES, QUESTION, make_span, make_trace, wrap_spans

GOOD = json.dumps(wrap_spans(*make_trace(99)))
NO_CONTENT = {"input__value": "", "output__value": ""}
CHAT = [
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "Ada."},
    {"role": "user", "content": "Why?"},
]


def lines(*records):
    return "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records) + "\n"


def span(**changes):
    return wrap_spans({**make_trace()[2], **changes}, *make_trace()[:2])


def fixture(name):
    return json.loads((FIXTURES / name).read_text().splitlines()[0])


def rows(name):
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]


def mlflow(**changes):
    record = fixture("mlflow.jsonl")
    return {**record, **changes}


def atif(**changes):
    return {**json.loads((FIXTURES / "atif.json").read_text()), **changes}


# Name, records beside a good trace, number of traces in them, and a part of the reason of each.
CASES = {
    "half a line": ('{"resourceSpans": [{"scopeSpans"', 1, "quarantined", "not JSON"),
    "a line of prose": ("error: disk full", 1, "quarantined", "not JSON"),
    "a list": ("[1, 2]", 1, "quarantined", "not JSON"),
    "resourceSpans of a text": ({"resourceSpans": "none"}, 1, "quarantined", "resourceSpans: should be a list"),
    "scopeSpans of a number": ({"resourceSpans": [{"scopeSpans": 3}]}, 1, "quarantined", "scopeSpans: should be"),
    "spans of nulls": ({"resourceSpans": [{"scopeSpans": [{"spans": [None]}]}]}, 1, "quarantined", "spans: should"),
    "no trace id": (wrap_spans({**make_trace()[2], "traceId": None}), 1, "quarantined", "trace id: is missing"),
    "trace id of zeros": (wrap_spans({**make_trace()[2], "traceId": "0" * 32}), 1, "quarantined", "all zeros"),
    "trace id of a number": (wrap_spans({**make_trace()[2], "traceId": 5}), 1, "quarantined", "trace id"),
    "no span id": (span(spanId=""), 1, "quarantined", "span id: is missing"),
    "span id in broken base64": (span(spanId="?!AAAAAAAAA="), 1, "quarantined", "neither hexadecimal nor base64"),
    "parent id of a list": (span(parentSpanId=["1"]), 1, "quarantined", "parent id"),
    "attributes of a text": (span(attributes="x"), 1, "quarantined", "attributes: should be an object"),
    "an attribute without key": (span(attributes=[{"value": {}}]), 1, "quarantined", "list of {key, value}"),
    "an attribute without value type": (span(attributes=[{"key": "a", "value": "b"}]), 1, "quarantined", "a value"),
    "an intValue of letters": (span(attributes=[{"key": "a", "value": {"intValue": "x"}}]), 1, "quarantined", "whole"),
    "an arrayValue of a text": (
        span(attributes=[{"key": "a", "value": {"arrayValue": {"values": "x"}}}]),
        1,
        "quarantined",
        "should be a list",
    ),
    "events of a number": (span(events=3), 1, "quarantined", "events: should be a list"),
    "a circle of parents": (span(parentSpanId=f"{1:016x}"), 1, "quarantined", "form a circle"),
    "a span id used twice": (wrap_spans(*make_trace(), make_span(1, 1, None, "other")), 1, "quarantined", "used twice"),
    "no content": (
        wrap_spans(make_span(1, 1, None, "qa", openinference__span__kind="CHAIN")),
        1,
        "rejected",
        "OPENINF",
    ),
    "no answer": (wrap_spans(*make_trace(**NO_CONTENT)[::2]), 1, "rejected", "no question"),
    "no final answer": (wrap_spans(*make_trace(output__value="")[::2]), 1, "rejected", "no final answer"),
    "no question": (wrap_spans(*make_trace(input__value="")), 1, "rejected", "no question"),
    "several questions": (wrap_spans(*make_trace(input__value=json.dumps(CHAT))), 1, "rejected", "several questions"),
    "no documents": (wrap_spans(*make_trace()[1:]), 1, "rejected", "no documents with text"),
    "documents without text": (
        wrap_spans(
            make_span(1, 2, 1, "r", openinference__span__kind="RETRIEVER", retrieval__documents__0__document__id="d"),
            make_trace()[2],
        ),
        1,
        "rejected",
        "no documents with text: unset OPENINFERENCE_HIDE",
    ),
    "the root is missing": (wrap_spans(*make_trace()[:2]), 1, "rejected", "root span not in the file"),
    "two traces on a line": (
        wrap_spans(*make_trace(1, input__value=""), *make_trace(2, output__value="")[::2]),
        2,
        "rejected",
        "no ",
    ),
}
OTHERS = {
    "mlflow without id": (mlflow(info={"state": "OK"}), "info.trace_id: is missing"),
    "mlflow without spans": (mlflow(data={"spans": None}), "data.spans: should be a list"),
    "mlflow with an empty trace": (mlflow(data={"spans": []}), "has no spans"),
    "mlflow span without id": (mlflow(data={"spans": [{"name": "qa"}]}), "span id: is missing"),
    "mlflow without content": (
        mlflow(data={"spans": [{"span_id": "3/3h4dgvzj0=", "attributes": {"mlflow.spanType": "CHAIN"}}]}),
        "no content captured: trace with mlflow",
    ),
    "langfuse row without trace": ({**rows("langfuse.jsonl")[0], "trace_id": None}, "trace_id: is missing"),
    "langfuse row without id": ({**rows("langfuse.jsonl")[0], "id": 7}, "id: is missing or not a text"),
    "langfuse row with a list as parent": ({**rows("langfuse.jsonl")[0], "parent_observation_id": [1]}, "parent_obs"),
    "langfuse without the group io": (
        {**rows("langfuse.jsonl")[0], "input": None, "output": None},
        "no content captured: export the field group io",
    ),
    "langfuse trace with broken observations": ({"id": "t", "observations": [3]}, "should be a list of objects"),
    "langsmith run without ids": ({"dotted_order": "x", "run_type": "chain", "id": None}, "trace_id: is missing"),
    "langsmith with hidden inputs": (
        {**rows("langsmith.jsonl")[0], "inputs": {}, "outputs": {}},
        "no content captured: unset LANGSMITH_HIDE_INPUTS",
    ),
    "langsmith with an error": ({**rows("langsmith.jsonl")[0], "outputs": None, "error": "E"}, "no final answer"),
    "atif without session": (atif(session_id=None), "session_id: is missing"),
    "atif with steps of texts": (atif(steps=["a"]), "steps: should be a list of objects"),
    "atif with two questions": (
        atif(steps=[{"source": "user", "message": "Who?"}, {"source": "user", "message": "Why?"}]),
        "several questions",
    ),
    "atif without an answer": (atif(steps=[{"source": "user", "message": "Who?"}]), "no final answer"),
    "atif with broken results": (
        atif(steps=[{"source": "agent", "message": "", "observation": {"results": "x"}}]),
        "results: should be a list",
    ),
}


def count(records):
    counter, reasons = RecordCounter(), []
    for record in records:
        counter.add(record)
        reasons.append(record.rejected or f"{record.error_kind}: {record.error}")
    return counter.counts(), reasons


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_trace_has_a_reason_and_the_good_one_beside_it_is_read(tmp_path, name):
    record, traces, outcome, reason = CASES[name]
    path = tmp_path / "t.jsonl"
    path.write_text(lines(GOOD, record, GOOD))
    for scan in (scan_instances, scan_recorded_responses):
        counts, reasons = count(scan(path))
        assert counts.conserved
        assert counts.received == traces + 1
        assert counts.accepted == 1
        assert sum(getattr(counts, outcome).values()) == traces
        assert sum(reason in text for text in reasons) == traces, reasons


@pytest.mark.parametrize("name", OTHERS)
def test_a_damaged_record_of_a_store_has_a_reason(tmp_path, name):
    record, reason = OTHERS[name]
    path = tmp_path / "t.jsonl"
    path.write_text(lines(record))
    counts, reasons = count(scan_recorded_responses(path, settings=ImportSettings(format=detect_file_layout(path))))
    assert (counts.received, counts.accepted) == (1, 0)
    assert reason in reasons[0]


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("*.json*")))
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path, name, share):
    data = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(data[: int(len(data) * share)])
    try:
        counts, _ = count(
            scan_recorded_responses(path, settings=ImportSettings(format=detect_file_layout(FIXTURES / name)))
        )
    except UserError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right, a traceback is not
    else:
        assert counts.conserved
        assert counts.received


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty", b""),
        ("blank", b"\n\n"),
        ("gzip cut off", gzip.compress(GOOD.encode() * 50)[:200]),
        ("UTF-16", GOOD.encode("utf-16")),
        ("an array cut off", b'[{"resourceSpans": []}, '),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, data):
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(data)
    with pytest.raises(UserError, match=path.name):
        list(scan_recorded_responses(path))


def replace_somewhere(value, rng):
    """Return the value with one part of it replaced by something of another type."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return {**value, key: replace_somewhere(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        return [*value[:index], replace_somewhere(value[index], rng), *value[index + 1 :]]
    return rng.choice(
        [None, "", "x", "[", "{}", '{"a": [', 7, -1.5, True, [], {}, [[]], [None], {"role": 3}, "\ud800", "\x00"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("*.jsonl")))
def test_no_change_of_a_value_ends_in_a_traceback(tmp_path, name):
    rng = random.Random(name)
    records = rows(name)
    path = tmp_path / name
    for _ in range(60):
        index = rng.randrange(len(records))
        key = rng.choice(sorted(records[index]))
        changed = {**records[index], key: replace_somewhere(records[index][key], rng)}
        path.write_text(lines(*records[:index], changed, *records[index + 1 :]))
        counts, _ = count(
            scan_recorded_responses(path, settings=ImportSettings(format=detect_file_layout(FIXTURES / name)))
        )
        assert counts.conserved
        assert counts.received


def test_a_trace_that_is_too_long_is_set_aside_and_the_next_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_TRACE_BYTES", 3_000)
    many = [make_span(1, number, 1, "chat") for number in range(2, 60)]
    path = tmp_path / "t.jsonl"
    path.write_text(lines(wrap_spans(*many), GOOD))
    counts, reasons = count(scan_recorded_responses(path))
    assert (counts.accepted, counts.quarantined) == (1, {"damaged trace": 1})
    assert "longer than 3,000 bytes" in reasons[0]


def test_text_outside_unicode_is_quarantined_not_raised(tmp_path):
    trace = make_trace(input__value=f"{QUESTION} \ud800", output__value=f"{ANSWER} \ud800")
    path = tmp_path / "t.jsonl"
    path.write_text(lines(wrap_spans(*trace), GOOD))
    counts, _ = count(scan_recorded_responses(path))
    assert counts.received == 2
    assert counts.conserved
