"""Traces are read, judged and their verdicts sent back to the spans they came from."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.files.jsonl import read_records
from eclose.readers.spans.selection import CaseSelection
from eclose.values.judgment import Judgment
from eclose_world.demo import make_demo_cases
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.generating import recipe
from tests.readers.spans.files import make_span, wrap_spans

pytestmark = pytest.mark.slow

KIND = "openinference__span__kind"


def write_traces(path, cases):
    """Write a trace for each case, with its passages in a retriever and its completion in a model's call."""
    with path.open("w") as file:
        for number, case in enumerate(cases, start=1):
            documents = {
                f"retrieval__documents__{index}__document__{field}": text
                for index, passage in enumerate(case.instance.evidence)
                for field, text in (("content", passage.text), ("metadata", json.dumps({"title": passage.title})))
            }
            texts = {"input__value": case.instance.question, "output__value": case.response.completion}
            spans = [
                make_span(number, 2, 1, "search", **{KIND: "RETRIEVER"}, **documents),
                make_span(number, 3, 1, "chat", **{KIND: "LLM"}, llm__model_name="m-1", **texts),
                make_span(number, 1, None, "qa", **{KIND: "CHAIN"}, **texts),
            ]
            file.write(json.dumps(wrap_spans(*spans)) + "\n")


def read_verdicts(path):
    """Return the scores of an OTLP file by trace, span and name."""
    verdicts = {}
    for line in path.read_text().splitlines():
        for resource in json.loads(line).get("resourceLogs", []):
            for record in resource["scopeLogs"][0]["logRecords"]:
                values = {pair["key"]: pair["value"] for pair in record["attributes"]}
                score = values.get("gen_ai.evaluation.score.value")
                name = values["gen_ai.evaluation.name"]["stringValue"]
                verdicts[record["traceId"], record["spanId"], name] = None if score is None else score["doubleValue"]
    return verdicts


def test_verdicts_return_to_the_spans_they_are_about(tmp_path):
    cases = [case for case in (group[0] for group in make_demo_cases(12)) if case.response.completion]
    write_traces(tmp_path / "traces.jsonl", cases)
    run = tmp_path / "run"
    with ModelServerThread(build_world_handlers()) as server:
        eclose.evaluate(
            tmp_path / "traces.jsonl", judge=server.base_url, out=run, calls=eclose.CallSettings(unpriced=True)
        )
    judgments = list(read_records(run / "judgments.jsonl", Judgment))
    assert len(judgments) == len(cases)
    result = eclose.export(run, tmp_path / "verdicts.jsonl", to="otlp")
    assert (result.responses, result.without_span) == (len(cases), 0)
    verdicts = read_verdicts(tmp_path / "verdicts.jsonl")
    by_trace = {judgment.response_id.split("-")[0]: judgment.verdict for judgment in judgments}
    for number, case in enumerate(cases, start=1):
        trace_id, span_id = f"{number:032x}", f"{1:016x}"
        for name, field in (("local_soundness", "locally_sound"), ("alignment", "aligned"), ("closure", "closed")):
            label = getattr(by_trace[trace_id], field)
            assert label is getattr(case.truth.verdict, field), case.response.completion
            assert verdicts[trace_id, span_id, f"eclose.{name}"] == (None if label is None else float(label))
    before = (tmp_path / "verdicts.jsonl").read_bytes()
    eclose.export(run, tmp_path / "verdicts.jsonl", to="otlp")
    assert (tmp_path / "verdicts.jsonl").read_bytes() == before


def test_the_command_judges_an_otlp_file_as_python_does(tmp_path):
    cases = [group[0] for group in make_demo_cases(4) if group[0].response.completion]
    path = tmp_path / "traces.jsonl"
    write_traces(path, cases)
    with ModelServerThread(build_world_handlers()) as server:
        imported = eclose.ImportSettings(dataset="support", cases=CaseSelection(case="span qa"))
        free = eclose.CallSettings(unpriced=True)
        eclose.evaluate(path, judge=server.base_url, out=tmp_path / "python", calls=free, imported=imported)
        arguments = ["judge", path, "--judge", server.base_url, "--no-price", "--out", tmp_path / "command"]
        flags = [*recipe(tmp_path, dataset="support", case="span qa"), "--max-unjudged-share", "1"]
        output = CliRunner().invoke(app, [*map(str, arguments), *flags])
    assert output.exit_code == 0, output.output
    for name in ("instances.jsonl", "responses.jsonl", "judgments.jsonl"):
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name
    assert len((tmp_path / "python/judgments.jsonl").read_text().splitlines()) == len(cases)
