"""Verdicts arrive with equal labels, an unjudged one is never 0, and a second export doubles nothing."""

import csv
import json
from collections import Counter

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.files.jsonl import read_records
from eclose.integrations.otlp import to_otlp_ids
from eclose.integrations.scores import ScoredResponse, ScoreName, read_score_table
from eclose.values.judgment import Judgment
from tests.integrations.stores import SECRET, TraceStore, write_judged_run

pytestmark = pytest.mark.slow

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": SECRET, "LANGSMITH_API_KEY": SECRET}
LABELS = {
    ScoreName.LOCAL_SOUNDNESS: "locally_sound",
    ScoreName.ALIGNMENT: "aligned",
    ScoreName.CLOSURE: "closed",
    ScoreName.COMPLETENESS: "complete",
    ScoreName.ACCURACY: "correct",
    ScoreName.RELIABILITY: "reliable",
}
RESPONSES = 40
SCORES = RESPONSES * len(ScoreName)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_judged_run(tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def truth(run):
    """The value of each score by response and name, from the judgments."""
    return {
        (judgment.response_id, str(name)): getattr(judgment.verdict, field)
        for judgment in read_records(run / "judgments.jsonl", Judgment)
        for name, field in LABELS.items()
    }


def numbers(truth):
    return {key: None if value is None else int(value) for key, value in truth.items()}


@pytest.fixture
def store():
    with TraceStore() as server:
        yield server


def test_ids_and_counts(run, truth):
    table = read_score_table(run)
    assert len(table.rows) == RESPONSES
    assert table.score_count == SCORES
    assert [row.derived for row in table.rows].count(True) == 1
    ids = [score.id for _, score in table.iterate()]
    assert len(set(ids)) == SCORES
    assert ids == [score.id for _, score in read_score_table(run).iterate()]
    assert any(value is None for value in truth.values())
    for row, score in table.iterate():
        assert (score.unjudged is None) == (score.label is not None)
        assert score.guideline is not None
        if score.name in LABELS:
            assert score.value is truth[row.response_id, str(score.name)]


def test_csv_and_parquet_hold_the_labels(run, truth, tmp_path):
    result = eclose.export(run, tmp_path / "scores.csv", to="csv")
    assert (result.responses, result.scores, result.sent, result.without_span) == (RESPONSES, SCORES, SCORES, 1)
    with (tmp_path / "scores.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    values = {(row["response_id"], row["name"]): row["value"] for row in rows if row["name"] in LABELS}
    assert values == {key: "" if value is None else str(int(value)) for key, value in truth.items()}
    assert result.unjudged == sum(bool(row["unjudged"]) for row in rows)
    eclose.export(run, tmp_path / "scores.parquet", to="parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "scores.parquet").to_pylist()
    assert {(row["response_id"], row["name"]): row["value"] for row in table if row["name"] in LABELS} == numbers(truth)
    before = (tmp_path / "scores.csv").read_bytes()
    eclose.export(run, tmp_path / "scores.csv", to="csv")
    assert (tmp_path / "scores.csv").read_bytes() == before


def read_otlp(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = [
        record
        for line in lines
        for group in line.get("resourceLogs", ())
        for scope in group["scopeLogs"]
        for record in scope["logRecords"]
    ]
    spans = [
        span
        for line in lines
        for group in line.get("resourceSpans", ())
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]
    return records, spans


def test_otlp_events_are_parented_and_spans_are_linked(run, truth, tmp_path):
    path = tmp_path / "scores.jsonl"
    eclose.export(run, path, to="otlp")
    records, spans = read_otlp(path)
    parents = {row.response_id: to_otlp_ids(row) for row in read_score_table(run).rows}
    assert len(records) == SCORES
    assert len(spans) == RESPONSES
    values = {}
    for record in records:
        attributes = {pair["key"]: next(iter(pair["value"].values())) for pair in record["attributes"]}
        response_id = attributes["eclose.response.id"]
        assert (record["traceId"], record["spanId"]) == parents[response_id]
        if attributes["gen_ai.evaluation.name"] in LABELS:
            score = attributes.get("gen_ai.evaluation.score.value")
            values[response_id, attributes["gen_ai.evaluation.name"]] = score
            assert (attributes.get("error.type") == "unjudged") == (score is None)
            assert (record["severityNumber"] > 9) == (score is None)
    assert values == numbers(truth)
    assert [(link["traceId"], link["spanId"]) for span in spans for link in span["links"]] == list(parents.values())
    assert len({(span["traceId"], span["spanId"]) for span in spans}) == RESPONSES
    before = path.read_bytes()
    eclose.export(run, path, to="otlp")
    assert path.read_bytes() == before


def test_otlp_is_read_back_by_its_own_library(run, truth, tmp_path):
    logs = pytest.importorskip(
        "opentelemetry.proto.collector.logs.v1.logs_service_pb2", reason="opentelemetry-proto is not installed"
    )
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    path = tmp_path / "scores.jsonl"
    eclose.export(run, path, to="otlp")
    values, kinds = {}, Counter()
    for line in path.read_text().splitlines():
        if line.startswith('{"resourceSpans"'):
            spans = Parse(line, ExportTraceServiceRequest()).resource_spans[0].scope_spans[0].spans
            kinds.update(pair.value.string_value for span in spans for pair in span.attributes if "kind" in pair.key)
            continue
        for record in Parse(line, logs.ExportLogsServiceRequest()).resource_logs[0].scope_logs[0].log_records:
            attributes = {pair.key: pair.value for pair in record.attributes}
            name = attributes["gen_ai.evaluation.name"].string_value
            score = attributes.get("gen_ai.evaluation.score.value")
            if name in LABELS:
                response_id = attributes["eclose.response.id"].string_value
                values[response_id, name] = None if score is None else int(score.double_value)
    assert values == numbers(truth)
    assert kinds["EVALUATOR"] == RESPONSES


@pytest.mark.parametrize(
    ("to", "read"),
    [
        ("langfuse", lambda body: (body["name"], body["value"] if body["dataType"] == "BOOLEAN" else None)),
        ("langsmith", lambda body: (body["key"], body.get("score"))),
        ("phoenix", lambda body: (body["name"], body["result"].get("score"))),
        ("otlp", lambda body: (body["gen_ai.evaluation.name"], body.get("gen_ai.evaluation.score.value"))),
    ],
)
def test_a_store_has_the_labels_and_nothing_twice(run, truth, store, to, read):
    first = eclose.export(run, store.url, to=to, environ=KEYS)
    assert first.sent == SCORES == len(store.scores)
    assert first.complete
    before = json.dumps(list(store.scores.values()), sort_keys=True)
    second = eclose.export(run, store.url, to=to, environ=KEYS)
    assert second.sent + second.present == SCORES
    assert json.dumps(list(store.scores.values()), sort_keys=True) == before
    values = {}
    for body in store.scores.values():
        metadata = body.get("metadata") or body.get("feedback_source", {}).get("metadata") or body
        name, value = read(body)
        if name in LABELS:
            values[metadata["eclose.response.id"], name] = value
        assert metadata["eclose.judge.model"]
        assert len(metadata["eclose.guideline.sha256"]) == 64
    assert values == numbers(truth)


def test_langsmith_counts_what_is_there(run, store):
    eclose.export(run, store.url, to="langsmith", environ=KEYS)
    again = eclose.export(run, store.url, to="langsmith", environ=KEYS)
    assert (again.sent, again.present) == (0, SCORES)
    assert all(body["error"] for body in store.scores.values() if body["value"] == "unjudged")


def test_a_store_that_fails_is_tried_again(run, store):
    store.failures = [503, 429, 500]
    assert eclose.export(run, store.url, to="langfuse", environ=KEYS).sent == SCORES


def test_an_unknown_span_is_refused_and_counted(run, store):
    row = read_score_table(run).rows[5]
    store.unknown_spans = {row.span_id}
    result = eclose.export(run, store.url, to="phoenix", environ={})
    assert result.refusals[0][0] == row.response_id
    assert sum(result.refused.values()) == len(ScoreName)
    assert result.sent == SCORES - len(ScoreName)
    output = CliRunner().invoke(app, ["export", str(run), store.url, "--to", "phoenix"])
    assert output.exit_code == 3
    assert "do not exist" in output.output


def test_a_score_that_langfuse_rejects_is_not_counted_as_sent(run, store):
    store.rejected_names = {ScoreName.CLOSURE}
    result = eclose.export(run, store.url, to="langfuse", environ=KEYS)
    assert result.refused == {"no such score config": RESPONSES}
    assert result.sent == SCORES - RESPONSES == len(store.scores)


def test_a_wrong_key_is_named_and_not_shown(run, store):
    with pytest.raises(eclose.SettingError, match="refuses the key") as error:
        eclose.export(run, store.url, to="langfuse", environ=KEYS | {"LANGFUSE_PUBLIC_KEY": "pk-lf-2"})
    assert SECRET not in str(error.value)
    with pytest.raises(eclose.SettingError, match="Set LANGSMITH_API_KEY"):
        eclose.export(run, store.url, to="langsmith", environ={})


@pytest.mark.parametrize("address", ["http://169.254.169.254", "http://[fe80::1]/v1", "http://2852039166"])
@pytest.mark.parametrize("to", ["otlp", "mlflow", "phoenix"])
def test_metadata_addresses_are_refused(run, address, to):
    with pytest.raises(eclose.SettingError, match="link-local"):
        eclose.export(run, address, to=to, environ={})


def test_wrong_targets(run, tmp_path):
    for to, target, message in (
        ("elsewhere", None, "no such target"),
        ("csv", None, "name the file"),
        ("csv", "https://example.org", "to a file"),
        ("mlflow", "sqlite:///x.db", "is no URL"),
        ("mlflow", None, "MLFLOW_TRACKING_URI"),
    ):
        with pytest.raises(eclose.SettingError, match=message):
            eclose.export(run, target, to=to, environ={})
    with pytest.raises(eclose.UserError):
        eclose.export(tmp_path, "x.csv", to="csv")


@pytest.mark.parametrize("to", ["otlp", "csv", "parquet"])
def test_the_command_writes_what_python_writes(run, tmp_path, to):
    eclose.export(run, tmp_path / "python", to=to)
    output = CliRunner().invoke(app, ["export", str(run), str(tmp_path / "command"), "--to", to])
    assert output.exit_code == 0
    assert f"{SCORES} scores of {RESPONSES} responses = {SCORES} sent" in output.output
    assert (tmp_path / "python").read_bytes() == (tmp_path / "command").read_bytes()


@pytest.mark.parametrize(
    ("trace_id", "digits"),
    [
        ("tr-" + "ab" * 16, "ab" * 16),
        ("AB" * 16, "ab" * 16),
        ("6f1c7b1e-1111-4222-8333-444455556666", "6f1c7b1e111142228333444455556666"),
    ],
)
def test_ids_of_other_stores_keep_their_digits(trace_id, digits):
    row = ScoredResponse("r", "q", "j", None, trace_id, None, False, ())
    assert to_otlp_ids(row)[0] == digits
    other = to_otlp_ids(ScoredResponse("r", "q", "j", None, "trace 7", "0" * 16, False, ()))
    assert all(part.strip("0") for part in other)


def test_tables_hold_the_users_own_columns(run, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    records = [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]
    records[0]["columns"] = {"city": "Lund", "model": "mine", "tags": [1]}
    own = tmp_path / "run"
    own.mkdir()
    for name in ("instances.jsonl", "judgments.jsonl"):
        (own / name).write_bytes((run / name).read_bytes())
    (own / "responses.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for to in ("csv", "parquet"):
        eclose.export(own, tmp_path / f"scores.{to}", to=to)
    with (tmp_path / "scores.csv").open(encoding="utf-8-sig") as file:
        cells = [(row["city"], row["own_model"], row["tags"]) for row in csv.DictReader(file)]
    assert Counter(cells) == {("Lund", "mine", "[1]"): len(ScoreName), ("", "", ""): SCORES - len(ScoreName)}
    table = pyarrow.read_table(tmp_path / "scores.parquet").to_pylist()
    assert [(row["city"] or "", row["own_model"] or "", row["tags"] or "") for row in table] == cells
