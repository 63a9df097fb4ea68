"""The Python interface: the verbs write what the commands write, take rows in every common form, and are documented."""

import asyncio
import doctest
import importlib
import inspect
import json
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
import eclose_train
from eclose.cli.main import app
from eclose.files.jsonl import read_records, write_records
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose_world.demo import write_demo_files
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.verifier.verifier_families import make_family

QUESTIONS = 30
FREE = eclose.CallSettings(unpriced=True)


def command(*words, codes=(0,)):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code in codes, result.output
    return result.output


def files(folder, *names):
    """The bytes of the files that a run leaves."""
    paths = [folder / name for name in names] or sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.suffix != ".sqlite"}


@pytest.fixture(scope="session")
def server():
    with ModelServerThread(build_world_handlers()) as thread:
        yield thread.base_url


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "demo"
    write_demo_files(folder, QUESTIONS)
    return folder


@pytest.fixture
def run(demo, tmp_path):
    """Questions and responses of the demo, not judged yet."""
    return copy_run(demo, tmp_path / "run")


def copy_run(demo, folder):
    folder.mkdir(parents=True)
    for name in ("instances.jsonl", "responses.jsonl"):
        (folder / name).write_bytes((demo / name).read_bytes())
    return folder


@pytest.mark.slow
def test_evaluate_writes_what_judge_and_diagnose_write(run, demo, tmp_path, server):
    other = copy_run(demo, tmp_path / "other" / "run")
    results = eclose.evaluate(run, judge=server, calls=FREE)
    results.report(run / "report")
    command("judge", other, "--judge", server, "--no-price")
    command("diagnose", other)
    assert files(run, "judgments.jsonl") == files(other, "judgments.jsonl")
    assert files(run / "report") == files(other / "report")
    manifests = [json.loads((folder / "judgments.jsonl.manifest.json").read_text()) for folder in (run, other)]
    assert manifests[0]["outputs"] == manifests[1]["outputs"]
    assert manifests[0]["inputs"] == manifests[1]["inputs"]
    assert manifests[0]["settings"] == manifests[1]["settings"]


@pytest.mark.slow
def test_diagnose_and_gate_say_what_the_commands_say(demo, tmp_path):
    results = eclose.diagnose(demo)
    results.report(tmp_path / "python")
    command("report", demo, "--out", tmp_path / "command")
    assert files(tmp_path / "python") == files(tmp_path / "command")
    result = eclose.gate(demo, min_trr=0.9, max_lgg=0.05)
    output = command("gate", demo, "--min-trr", 0.9, "--max-lgg", 0.05, codes=(100, 101))
    for check in result.checks:
        assert str(check) in output
    assert f": {result.outcome}" in output
    assert not result.passed


@pytest.mark.slow
def test_compare_says_what_diagnose_says_against_a_base(demo, tmp_path):
    comparison = eclose.compare(demo, demo)
    difference = comparison.comparison.overall.differences
    assert {estimate.estimate.value for estimate in difference.values()} <= {0.0, None}


@pytest.mark.slow
def test_generate_writes_what_the_command_writes(demo, tmp_path, server):
    questions = demo / "instances.jsonl"
    result = eclose.generate(
        questions, model=server, out=tmp_path / "python", settings=eclose.GenerateSettings(limit=4), calls=FREE
    )
    command("generate", questions, "--model", server, "--out", tmp_path / "command", "--limit", 4, "--no-price")
    names = ("instances.jsonl", "responses.jsonl")
    assert files(tmp_path / "python", *names) == files(tmp_path / "command", *names)
    assert result.manifest.counts.accepted == 4


@pytest.mark.slow
def test_construct_writes_what_the_command_writes(tmp_path, server):
    sources = tmp_path / "sources.jsonl"
    write_records(sources, [item.instance for item in islice(make_world_items("short-easy", 11), 4)])
    eclose_train.construct(sources, constructor=server, verifier=server, out=tmp_path / "python", calls=FREE)
    flags = ("--constructor", server, "--verifier", server, "--no-price", "--out", tmp_path / "command")
    command("construct", sources, *flags)
    names = ("families.jsonl", "train.jsonl", "development.jsonl", "README.md")
    assert files(tmp_path / "python", *names) == files(tmp_path / "command", *names)


def rows_of(demo, count=5):
    """Rows as an engineer has them: question, contexts, response and reference side by side."""
    questions = {instance.id: instance for instance in read_records(demo / "instances.jsonl", Instance)}
    responses = islice(read_records(demo / "responses.jsonl", Response), count)
    return [
        {
            "user_input": questions[response.instance_id].question,
            "retrieved_contexts": [passage.text for passage in questions[response.instance_id].evidence],
            "response": "\n".join([*(step.text for step in response.trace.steps), f"Final answer: {response.answer}"]),
            "reference": questions[response.instance_id].reference_answer,
        }
        for response in responses
    ]


@pytest.mark.slow
def test_rows_in_every_common_form_give_the_same_results(demo, tmp_path, server):
    import pyarrow as pa

    rows = rows_of(demo)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forms = {"list": rows, "arrow": pa.Table.from_pylist(rows), "path": path, "generator": (row for row in rows)}
    if pandas := pytest.importorskip("pandas", reason="pandas is not a dependency") if has("pandas") else None:
        forms["pandas"] = pandas.DataFrame(rows)
    if datasets := importlib.import_module("datasets") if has("datasets") else None:
        forms["datasets"] = datasets.Dataset.from_list(rows)
    tables = {
        name: eclose.evaluate(data, judge=server, calls=FREE, out=tmp_path / name).to_dicts()
        for name, data in forms.items()
    }
    assert len(tables["list"]) == len(rows)
    for table in tables.values():
        assert table == tables["list"]


def has(name):
    return importlib.util.find_spec(name) is not None


@pytest.mark.slow
def test_rows_without_a_folder_leave_nothing_behind(demo, tmp_path, server, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = eclose.evaluate(rows_of(demo), judge=server, calls=FREE)
    assert len(results) == 5
    assert results.folder is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data, problem", [({"question": "?"}, "one dict"), (["a"], "row 1: is of type str"), (7, "data is a int")]
)
def test_what_is_no_table_is_refused_by_name(data, problem, tmp_path):
    with pytest.raises(eclose.SettingError, match=problem):
        eclose.evaluate(data, judge="http://127.0.0.1:9/v1", out=tmp_path / "run")


@pytest.mark.slow
def test_a_folder_belongs_to_one_table(demo, tmp_path, server):
    eclose.evaluate(rows_of(demo), judge=server, calls=FREE, out=tmp_path / "run")
    with pytest.raises(eclose.UserError, match="holds other rows"):
        eclose.evaluate(rows_of(demo, 4), judge=server, calls=FREE, out=tmp_path / "run")


@pytest.mark.slow
def test_verbs_work_inside_a_running_loop_and_as_coroutines(demo, server):
    case = eclose.diagnose(demo).cases[0]

    async def notebook():
        inside = eclose.judge(case.instance, case.response, judge=server, calls=FREE)
        awaited = await eclose.ajudge(case.instance, case.response, judge=server, calls=FREE)
        return inside, awaited

    inside, awaited = asyncio.run(notebook())
    assert inside == awaited == eclose.judge(case.instance, case.response, judge=server, calls=FREE)


@pytest.mark.slow
def test_a_completion_can_be_judged_as_text(demo, server):
    case = eclose.diagnose(demo).cases[0]
    judgment = eclose.judge(
        case.instance, f"1. {case.response.trace.steps[0].text}\nFinal answer: x", judge=server, calls=FREE
    )
    assert judgment.verdict.correct is False


@pytest.mark.slow
def test_a_response_to_another_question_is_refused(demo, server):
    first = eclose.diagnose(demo).cases[0]
    other = next(case for case in eclose.diagnose(demo).cases if case.instance.id != first.instance.id)
    with pytest.raises(eclose.UserError, match="answers"):
        eclose.judge(first.instance, other.response, judge=server, calls=FREE)


@pytest.mark.slow
def test_an_infinite_number_in_a_row_is_refused_by_name(demo, server):
    rows = rows_of(demo, 2)
    rows[1]["score"] = float("inf")
    with pytest.raises(eclose.SettingError, match="row 2"):
        eclose.evaluate(rows, judge=server, calls=FREE)


@pytest.mark.slow
def test_results_as_tables_and_in_a_notebook(demo):
    results = eclose.diagnose(demo)
    rows = results.to_dicts()
    assert len(rows) == len(results) == 2 * QUESTIONS
    assert results.to_arrow().to_pylist() == rows
    rate = results.rates["TRR"]
    assert rate.value == pytest.approx(sum(row["reliable"] is True for row in rows) / rate.n)
    assert rate.interval.low < rate.value < rate.interval.high
    assert "TRR" in repr(results)
    page = results._repr_html_()
    assert results.worst[0].response.id in page
    assert "<script" not in page


def exported(kind):
    names = {name: package for package in (eclose, eclose_train) for name in package.__all__}
    values = {name: getattr(package, name) for name, package in names.items()}
    return {name: value for name, value in sorted(values.items()) if kind(value)}


VERBS = {
    "aconstruct", "adetect", "aevaluate", "agenerate", "ajudge", "assert_reliable", "compare",
    "construct", "detect", "diagnose", "evaluate", "export", "gate", "generate", "judge", "select",
    "switch_test", "train",
}  # fmt: skip


@pytest.mark.torch
def test_the_verbs_are_exported():
    assert set(exported(inspect.isfunction)) >= VERBS


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_exported_function_says_what_it_takes_returns_and_raises(name):
    functions = exported(inspect.isfunction)
    function = functions[name]
    text = inspect.getdoc(function)
    if name.startswith("a") and name[1:] in VERBS:
        assert (function.__name__, text) == (name, inspect.getdoc(functions[name[1:]]))
        assert inspect.iscoroutinefunction(function)
    parameters = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]
    assert "Returns:" in text
    for parameter in parameters:
        assert f"{parameter}:" in text, parameter
    if name in VERBS:
        assert "Raises:" in text


MODULES = sorted({*eclose._HOMES, *eclose_train._HOMES, "eclose.diagnosis.label_file", "eclose.report.detectors.write"})


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_interface_run(name, demo, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_run(demo, tmp_path / "run")
    (tmp_path / "demo").symlink_to(demo)
    write_records(tmp_path / "sources.jsonl", [item.instance for item in islice(make_world_items("short-easy", 11), 3)])
    write_records(tmp_path / "families.jsonl", [make_family(f"f{number}") for number in range(5)])
    module = importlib.import_module(name)
    assert (
        doctest.testmod(module, extraglobs={"eclose": eclose, "eclose_train": eclose_train, "server": server}).failed
        == 0
    )
