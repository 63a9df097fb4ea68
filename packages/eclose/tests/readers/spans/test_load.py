"""Cases read from the files of real producers, and the selection of cases."""

from __future__ import annotations

import gzip
import json
import random

import pytest

from eclose.errors import SettingError, UserError
from eclose.readers.import_settings import CaseSelection, ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import detect_file_layout, scan_instances, scan_recorded_responses, scan_trace_cases
from eclose.readers.spans.selection import resolve_pointer
from eclose.values.response import SpanRef
from tests.readers.spans.files import (
    ANSWER,
    DOCUMENT,
    FIXTURES,
    QUESTION,
    make_span,
    make_trace,
    wrap_spans,
    write_lines,
)

STEPS = ("Ada Rowe designed the Alma bridge.", "Ada Rowe was born in Lund.")
FILES = {
    "otel-genai.jsonl": (RecordLayout.OTLP, STEPS),
    "openinference.jsonl": (RecordLayout.OTLP, STEPS),
    "openinference-sdk.jsonl": (RecordLayout.OTLP, STEPS),
    "openinference-console.json": (RecordLayout.OTLP, STEPS),
    "mlflow.jsonl": (RecordLayout.MLFLOW, STEPS),
    "mlflow-pretty.json": (RecordLayout.MLFLOW, STEPS),
    "langfuse.jsonl": (RecordLayout.LANGFUSE, STEPS),
    "langsmith.jsonl": (RecordLayout.LANGSMITH, STEPS),
    "atif.json": (RecordLayout.ATIF, STEPS),
}


def read(path, **selection):
    return list(scan_trace_cases(path, ImportSettings(cases=CaseSelection(**selection))))


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_producer_becomes_a_question_with_its_response(name):
    layout, steps = FILES[name]
    path = FIXTURES / name
    assert detect_file_layout(path) is layout
    (question,) = scan_instances(path)
    (response,) = scan_recorded_responses(path)
    assert question.value is not None, question
    assert response.value is not None, response
    assert question.value.question == QUESTION
    assert "Ada Rowe was born in Lund" in " ".join(passage.text for passage in question.value.evidence)
    assert response.value.trace.texts == steps
    assert response.value.answer == "Lund"
    assert response.value.source is not None
    assert response.value.source.model == "m-1"
    assert response.value.span is not None
    assert response.value.span.store == layout.value
    assert response.value.instance_id == question.value.id
    if name != "atif.json":
        assert [passage.title for passage in question.value.evidence] == ["Alma bridge", "Ada Rowe"]


def test_spans_without_content_are_rejected_with_the_switch_to_turn_on():
    (record,) = scan_recorded_responses(FIXTURES / "otel-genai-no-content.jsonl")
    assert record.rejected is not None
    assert record.rejected.startswith("no content captured: set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")


def test_the_ids_of_trace_and_span_are_kept(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", wrap_spans(*make_trace(7)))
    (record,) = scan_recorded_responses(path)
    assert record.value is not None
    assert record.value.span == SpanRef(f"{7:032x}", f"{1:016x}", "otlp")


def test_spans_of_a_trace_may_be_anywhere_in_the_file(tmp_path):
    spans = [span for number in range(1, 41) for span in make_trace(number, input__value=f"{QUESTION} {number}")]
    random.Random(1).shuffle(spans)
    path = write_lines(tmp_path / "t.jsonl", *(wrap_spans(span) for span in spans))
    records = read(path)
    assert len(records) == 40
    assert {record.value.instance.question for record in records if record.value} == {
        f"{QUESTION} {number}" for number in range(1, 41)
    }


def test_base64_ids_of_protobuf_json_are_read_as_hexadecimal(tmp_path):
    span = {**make_trace()[2], "traceId": "AAAAAAAAAAAAAAAAAAAAAQ==", "spanId": "AAAAAAAAAAE="}
    path = write_lines(
        tmp_path / "t.jsonl", {"resource_spans": [{"scope_spans": [{"spans": [span, *make_trace()[:2]]}]}]}
    )
    (record,) = read(path)
    assert record.value is not None
    assert record.value.response.span.trace_id == f"{1:032x}"


def test_gzip_and_a_json_array_are_read(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps([wrap_spans(*make_trace())]).encode()))
    (record,) = scan_recorded_responses(path)
    assert record.value is not None


@pytest.mark.slow
def test_langfuse_rows_of_parquet_are_read(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in (FIXTURES / "langfuse.jsonl").read_text().splitlines()]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "o.parquet")
    (record,) = scan_recorded_responses(tmp_path / "o.parquet")
    assert record.value is not None
    assert record.value.answer == "Lund"


def test_a_manifest_of_langfuse_stands_for_the_files_it_lists(tmp_path):
    rows = (FIXTURES / "langfuse.jsonl").read_text().splitlines(keepends=True)
    for folder in ("observations_v2", "manifests", "scores"):
        (tmp_path / folder).mkdir()
    (tmp_path / "observations_v2" / "1.jsonl").write_text(rows[1])
    (tmp_path / "observations_v2" / "2.jsonl").write_text(rows[0] + rows[2])
    files = [{"key": "prefix/observations_v2/1.jsonl"}, "prefix/observations_v2/2.jsonl", "prefix/scores/1.jsonl"]
    manifest = tmp_path / "manifests" / "1.json"
    manifest.write_text(json.dumps({"files": files}, indent=1))
    (record,) = scan_recorded_responses(manifest)
    assert record.value is not None
    assert record.value.answer == "Lund"
    (tmp_path / "observations_v2" / "1.jsonl").unlink()
    with pytest.raises(UserError, match=r"lists prefix/observations_v2/1.jsonl, which is not beside it"):
        list(scan_recorded_responses(manifest))


def test_the_json_of_a_langfuse_trace_is_read(tmp_path):
    rows = [json.loads(line) for line in (FIXTURES / "langfuse.jsonl").read_text().splitlines()]
    observations = [
        {"id": row["id"], "type": row["type"], "parentObservationId": None, "output": row["output"]}
        for row in rows[1:3]
    ]
    trace = {"id": "lf-1", "input": {"question": QUESTION}, "output": ANSWER, "observations": observations}
    (record,) = read(write_lines(tmp_path / "t.jsonl", trace))
    assert record.value is not None
    assert record.value.response.span == SpanRef("lf-1", "lf-1", "langfuse")
    assert record.value.response.id == "lf-1"


def test_a_table_of_spans_as_phoenix_exports_it_is_read(tmp_path):
    rows = [
        {
            "context.trace_id": "a" * 32,
            "context.span_id": "1" * 16,
            "parent_id": None,
            "name": "qa",
            "span_kind": "CHAIN",
            "attributes.input.value": QUESTION,
            "attributes.output.value": ANSWER,
        },
        {
            "context.trace_id": "a" * 32,
            "context.span_id": "2" * 16,
            "parent_id": "1" * 16,
            "name": "search",
            "span_kind": "RETRIEVER",
            "attributes.retrieval.documents": [{"document.content": DOCUMENT, "document.score": 0.5}],
        },
    ]
    (record,) = read(write_lines(tmp_path / "t.jsonl", *rows))
    assert record.value is not None
    assert record.value.instance.evidence[0].text == DOCUMENT


def test_spans_of_phoenix_api_keep_the_titles_of_documents(tmp_path):
    """The API spreads the metadata of a document over keys; the client's data frame has it as an object."""
    prefix = "retrieval.documents.0.document"
    span = {"name": "qa", "context": {"trace_id": "ab" * 16, "span_id": "cd" * 8}, "parent_id": None}
    retriever = {"name": "search", "context": {"trace_id": "ab" * 16, "span_id": "ef" * 8}, "parent_id": "cd" * 8}
    rows = [
        {**span, "span_kind": "CHAIN", "attributes": {"input.value": QUESTION, "output.value": ANSWER}},
        {
            **retriever,
            "span_kind": "RETRIEVER",
            "attributes": {f"{prefix}.content": DOCUMENT, f"{prefix}.metadata.title": "Alma bridge"},
        },
    ]
    (question,) = scan_instances(write_lines(tmp_path / "spans.jsonl", *rows))
    assert [passage.title for passage in question.value.evidence] == ["Alma bridge"]


@pytest.mark.parametrize("write", ["jsonl", "parquet"])
def test_a_table_of_traces_as_mlflow_returns_it_is_read(tmp_path, write):
    """``mlflow.search_traces`` returns a data frame, with the JSON of each trace in the column ``trace``."""
    text = (FIXTURES / "mlflow.jsonl").read_text()
    whole = {record.value.id: record.value for record in scan_recorded_responses(FIXTURES / "mlflow.jsonl")}
    row = {"trace_id": "tr-1", "trace": text.strip(), "state": "OK", "request": {"question": QUESTION}, "spans": [{}]}
    if write == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "traces.parquet"
        parquet.write_table(pyarrow.Table.from_pylist([{name: row[name] for name in ("trace_id", "trace")}]), path)
    else:
        path = write_lines(tmp_path / "traces.jsonl", row)
    assert detect_file_layout(path) is RecordLayout.MLFLOW
    assert {record.value.id: record.value for record in scan_recorded_responses(path)} == whole


def test_a_row_of_mlflow_without_its_trace_is_damaged(tmp_path):
    rows = [{"trace": (FIXTURES / "mlflow.jsonl").read_text().strip()}, {"trace": None}, {"trace": "{"}]
    records = read(write_lines(tmp_path / "traces.jsonl", *rows))
    assert [record.error is None for record in records] == [True, False, False]
    assert "trace: should be the JSON of a trace" in str(records[1].error)


def test_a_reranker_decides_which_documents_count(tmp_path):
    kind = "openinference__span__kind"
    reranker = make_span(
        1, 4, 1, "rerank", **{kind: "RERANKER", "reranker__output_documents__0__document__content": "Only this."}
    )
    (record,) = read(write_lines(tmp_path / "t.jsonl", wrap_spans(*make_trace(), reranker)))
    assert [passage.text for passage in record.value.instance.evidence] == ["Only this."]


def test_tool_results_are_evidence_and_texts_between_them_steps(tmp_path):
    operation = "gen_ai__operation__name"

    def say(*texts):
        return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text} for text in texts]}])

    ask = json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}])
    spans = [
        make_span(1, 1, None, "invoke_agent", **{operation: "invoke_agent"}),
        make_span(
            1,
            2,
            1,
            "chat",
            **{operation: "chat"},
            gen_ai__input__messages=ask,
            gen_ai__output__messages=say("I search."),
        ),
        make_span(1, 3, 1, "execute_tool", **{operation: "execute_tool"}, gen_ai__tool__call__result=DOCUMENT),
        # A model within a tool is not the response's own reasoning.
        make_span(1, 4, 3, "chat", **{operation: "chat"}, gen_ai__output__messages=say("Rewritten query.")),
        make_span(1, 5, 1, "chat", **{operation: "chat"}, gen_ai__output__messages=say("Lund")),
    ]
    (record,) = read(write_lines(tmp_path / "t.jsonl", wrap_spans(*spans)))
    assert record.value is not None
    assert record.value.instance.question == QUESTION
    assert [passage.text for passage in record.value.instance.evidence] == [DOCUMENT]
    # What the agent is about to do is no step.
    assert record.value.response.trace.texts == ()
    assert record.value.response.answer == "Lund"


def test_a_tool_that_returns_documents_gives_one_passage_each(tmp_path):
    documents = [{"title": "A", "text": "One."}, {"title": "B", "text": "Two."}]
    tool = make_span(1, 2, 1, "search", openinference__span__kind="TOOL", output__value=json.dumps(documents))
    (record,) = read(write_lines(tmp_path / "t.jsonl", wrap_spans(tool, make_trace()[2])))
    assert [passage.title for passage in record.value.instance.evidence] == ["A", "B"]


def test_cases_are_selected_by_name_and_by_attribute(tmp_path):
    spans = make_trace(app__kind="request")
    inner = make_span(
        1, 5, 1, "inner", openinference__span__kind="CHAIN", app__kind="case", input__value="Who?", output__value="Ada"
    )
    retriever = {**make_trace()[0], "parentSpanId": f"{5:016x}"}
    path = write_lines(tmp_path / "t.jsonl", wrap_spans(spans[2], inner, retriever))
    for rule in ("span inner", "app.kind=case"):
        (record,) = read(path, case=rule)
        assert record.value is not None
        assert record.value.instance.question == "Who?"
        assert record.value.response.span.span_id == f"{5:016x}"
    (record,) = read(path, case="span nothing")
    assert record.rejected == "no span matches 'span nothing'"


def test_pointers_name_question_documents_and_answer(tmp_path):
    content = json.dumps({"q": ["Who?"], "ctx": [DOCUMENT], "a": {"text": "Ada"}})
    span = make_span(1, 1, None, "handler", app__log=content)
    path = write_lines(tmp_path / "t.jsonl", wrap_spans(span))
    (record,) = read(path, question="/app.log/q/0", documents="/app.log/ctx", answer="/app.log/a")
    assert record.value is not None
    assert record.value.instance.question == "Who?"
    assert record.value.response.answer == "Ada"
    (record,) = read(path, question="/app.log/nowhere", documents="/app.log/ctx", answer="/app.log/a")
    assert record.rejected == "no question at /app.log/nowhere"


@pytest.mark.parametrize("selection", [{"case": "leaf"}, {"case": "span "}, {"question": "app.log"}])
def test_a_selection_that_cannot_be_read_is_refused(tmp_path, selection):
    with pytest.raises(SettingError):
        read(write_lines(tmp_path / "t.jsonl", wrap_spans(*make_trace())), **selection)


def test_names_that_the_file_leaves_out_come_from_the_settings(tmp_path):
    root = make_trace()[2]
    path = write_lines(tmp_path / "t.jsonl", wrap_spans(make_trace()[0], root))
    (record,) = scan_trace_cases(path, ImportSettings(model="ours", dataset="logs"))
    assert record.value is not None
    assert record.value.response.source.model == "ours"
    assert record.value.instance.benchmark == "logs"


def test_a_root_recorded_elsewhere_is_replaced_by_the_top_span(tmp_path):
    spans = make_trace()
    spans[2]["parentSpanId"] = "9" * 16
    (record,) = read(write_lines(tmp_path / "t.jsonl", wrap_spans(*spans)))
    assert record.value is not None
    assert "top span taken as root, its parent is not in the file" in record.repairs


def test_a_file_of_questions_is_no_file_of_traces(tmp_path):
    with pytest.raises(UserError, match="is not a file of traces"):
        read(write_lines(tmp_path / "q.jsonl", {"question": "?"}))


def test_pointers_follow_rfc_6901():
    assert resolve_pointer({"a/b": {"c~d": [1, 2]}}, "/a~1b/c~0d/1") == 2
    assert resolve_pointer({"a": [1]}, "/a/1") is None
    assert resolve_pointer({"a": "text"}, "/a/b") is None


TIMES = {
    "otel-genai.jsonl": "2026-11-1",
    "openinference.jsonl": "2026-11-1",
    "openinference-console.json": "2026-11-1",
    "mlflow.jsonl": "2026-11-1",
    "langfuse.jsonl": "2026-11-01T10:00:00.500000Z",
    "langsmith.jsonl": "2026-11-17T10:11:51.751176Z",
}


@pytest.mark.parametrize("name", TIMES)
def test_a_response_has_the_time_at_which_its_span_ended(name):
    (response,) = scan_recorded_responses(FIXTURES / name)
    assert response.value.time.startswith(TIMES[name])


def test_a_langfuse_trace_and_an_atif_trajectory_have_the_time_of_their_answer(tmp_path):
    trace = {"id": "t", "timestamp": "2026-11-20T10:00:00.000Z", "input": QUESTION, "output": ANSWER}
    documents = {"id": "o", "type": "RETRIEVER", "output": [{"page_content": DOCUMENT}]}
    (response,) = read(write_lines(tmp_path / "langfuse.jsonl", {**trace, "observations": [documents]}))
    assert response.value.response.time == "2026-11-20T10:00:00Z"
    trajectory = json.loads((FIXTURES / "atif.json").read_text())
    trajectory["steps"][-1]["timestamp"] = "2026-11-20T10:00:00Z"
    (response,) = read(write_lines(tmp_path / "atif.json", trajectory))
    assert response.value.response.time == "2026-11-20T10:00:00Z"


def test_a_time_of_a_span_that_cannot_be_read_is_left_out_and_noted(tmp_path):
    spans = [{**span, "startTimeUnixNano": "7"} for span in make_trace()]
    (record,) = read(write_lines(tmp_path / "t.jsonl", wrap_spans(*spans)))
    assert record.value.response.time is None
    assert record.repairs[0] == "time that cannot be read left out"
