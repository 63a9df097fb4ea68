"""A user's own function converts records; what it refuses, and what it fails on, is counted record by record."""

from __future__ import annotations

import hashlib
import json
import sys
import textwrap

import pytest

from eclose.benchmarks.converter_function import load_converter_function
from eclose.benchmarks.import_settings import CaseSelection, ImportSettings, TraceMode
from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import resolve_file_layout, scan_instances, scan_recorded_responses
from eclose.core.instance import Instance, Passage
from eclose.errors import SettingError

NATIVE = {"id": "q1", "question": "Who?", "evidence": [{"id": "0", "title": "Bridge", "text": "Ada built it."}]}
CONVERTER = """
    from __future__ import annotations

    from dataclasses import dataclass

    from eclose import Instance, Passage


    @dataclass
    class Answers:
        first: str


    def convert(record):
        if not record["gold"]:
            return "no reference\\n answer"
        answers = Answers(record["gold"][0])
        evidence = tuple(Passage(str(i), t, " ".join(s)) for i, (t, s) in enumerate(record["ctx"].items()))
        return Instance(record["qid"], record["query"], evidence, answers.first, tuple(record["gold"][1:]))
"""


@pytest.fixture(autouse=True)
def import_folders(monkeypatch):
    """Folders that converters add to the path of imports go with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def write_converter(path, text=CONVERTER):
    path.write_text(textwrap.dedent(text))
    return f"{path}:convert"


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def scan_with(path, text, *records):
    """The records of a file as a converter of this text reads them."""
    file = write_lines(path / "a.jsonl", *(records or ({},)))
    settings = ImportSettings(converter=write_converter(path / "museum.py", text))
    return list(scan_instances(file, settings=settings))


def test_an_instance_a_reason_or_an_error_comes_back(tmp_path):
    record = {"qid": "q1", "query": "Who?", "gold": ["Ada", "A. Rowe"], "ctx": {"Bridge": ["Ada built it.", "Yes."]}}
    missing = {name: value for name, value in record.items() if name != "gold"}
    read = scan_with(tmp_path, CONVERTER, record, {**record, "gold": []}, missing, {**record, "qid": 7}, record)
    passage = Passage("0", "Bridge", "Ada built it. Yes.")
    assert read[0].value == Instance("q1", "Who?", (passage,), "Ada", ("A. Rowe",))
    assert read[1].rejected == "no reference answer"
    assert str(read[2].error) == f"{tmp_path / 'a.jsonl'} line 3: museum.py:convert: KeyError: 'gold'"
    assert str(read[3].error).endswith("line 4: museum.py:convert: id: should be a valid string")
    assert read[4].rejected == "duplicate"


def test_a_dict_in_the_native_layout_is_checked_like_a_file(tmp_path):
    text = f"def convert(record):\n    return {NATIVE!r} | record\n"
    good, unknown, blank = scan_with(tmp_path, text, {"hops": 2}, {"hop": 2}, {"question": " "})
    assert (good.value.hops, good.value.evidence[0].title) == (2, "Bridge")
    assert "museum.py:convert: hop: no such field" in str(unknown.error)
    assert "question: is empty" in str(blank.error)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return None", "returned a value of type NoneType. Return an Instance, a dict in the native layout, or the r"),
        ("return [record]", "returned a value of type list"),
        ("return ' '", "returned an empty text"),
        ("raise ValueError('two\\nlines')", "museum.py:convert: ValueError: two lines"),
        ("raise RuntimeError", "museum.py:convert: RuntimeError"),
        ("import sys; sys.exit(3)", "museum.py:convert: SystemExit: 3"),
        ("return convert(record)", "museum.py:convert: RecursionError: "),
        ("record['me'] = record; return record", "museum.py:convert: Circular reference"),
        ("return {**record, 'question': {1, 2}}", "museum.py:convert: holds a value that is not JSON"),
        ("from eclose import Instance; return Instance('q', 'Who?', None)", "museum.py:convert: evidence: should be"),
        (
            "from eclose import Instance; return Instance('q', 'Who?', [(i for i in ())])",
            "museum.py:convert: TypeError",
        ),
    ],
)
def test_a_failure_concerns_its_record_alone(body, problem, tmp_path):
    text = f"def convert(record):\n    if record.get('fine'):\n        return {NATIVE!r}\n    {body}\n"
    failed, fine = scan_with(tmp_path, text, {}, {"fine": True})
    assert problem in str(failed.error)
    assert failed.error_kind == "wrong record"
    assert fine.value is not None


@pytest.mark.parametrize(
    ("converter", "problem"),
    [
        ("museum.py", "is no FILE.py:FUNCTION or MODULE:FUNCTION. Write --converter museum.py:convert"),
        ("museum.py:a b", "is no FILE.py:FUNCTION"),
        (":convert", "is no FILE.py:FUNCTION"),
        ("absent.py:convert", "there is no file .*absent.py. Check the path"),
        ("museum.py:convrt", "museum.py has no function 'convrt'. Functions there: convert"),
        ("museum.py:number", "museum.py has no function 'number'"),
        ("broken.py:convert", "importing it fails with SyntaxError: "),
        ("failing.py:convert", "importing it fails with KeyError: 'x'"),
        ("exiting.py:convert", "importing it fails with SystemExit: 0"),
        ("needing.py:convert", "importing it fails with ModuleNotFoundError: No module named 'absent_module'"),
        ("absent_module:convert", "there is no module 'absent_module'. Write a file as FILE.py:FUNCTION"),
        ("json.absent:convert", "there is no module 'json.absent'"),
        ("json:absent", "json has no function 'absent'"),
        ("builtins:print", "the source of the function is not a file"),
    ],
)
def test_what_cannot_be_imported_is_refused_before_reading(converter, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "museum": "number = 3\ndef convert(record):\n    return {}\n",
        "broken": "def convert(record:\n",
        "failing": "{}['x']\n",
        "exiting": "raise SystemExit(0)\n",
        "needing": "import absent_module\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(SettingError, match=f"--converter {converter}: .*{problem}"):
        resolve_file_layout(tmp_path / "absent.jsonl", RecordLayout.AUTO, ImportSettings(converter=converter))


def test_a_module_is_found_in_the_working_folder_and_modules_beside_a_file(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "beside_museum.py").write_text(f"def read(record):\n    return {NATIVE!r}\n")
    (folder / "museum_reader.py").write_text(
        "from beside_museum import read\ndef convert(record): return read(record)\n"
    )
    file = write_lines(tmp_path / "a.jsonl", {})
    (record,) = scan_instances(file, settings=ImportSettings(converter=f"{folder / 'museum_reader.py'}:convert"))
    assert record.value is not None
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "beside_museum")
    settings = ImportSettings(converter="beside_museum:read")
    assert next(scan_instances(file, settings=settings)).value is not None
    sha256 = hashlib.sha256((folder / "beside_museum.py").read_bytes()).hexdigest()
    assert settings.identity == {"converter": {"name": "beside_museum:read", "sha256": sha256}}
    # The source of the function counts, not that of a module that imports it.
    imported = load_converter_function("museum_reader.py:read")
    assert (imported.name, imported.source_hash) == ("museum_reader.py:read", sha256)
    monkeypatch.delitem(sys.modules, "beside_museum")


def test_a_changed_file_is_run_anew_and_is_other_work(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", {})
    converter = write_converter(tmp_path / "museum.py", "def convert(record): return 'reason 1'\n")
    settings = ImportSettings(converter=converter)
    before = settings.identity
    assert next(scan_instances(file, settings=settings)).rejected == "reason 1"
    # Of the same size, and often in the same second: compiled code would not notice.
    write_converter(tmp_path / "museum.py", "def convert(record): return 'reason 2'\n")
    assert next(scan_instances(file, settings=settings)).rejected == "reason 2"
    assert settings.identity["converter"]["name"] == before["converter"]["name"] == "museum.py:convert"
    assert settings.identity["converter"]["sha256"] != before["converter"]["sha256"]


def test_objects_that_can_be_called_are_functions(tmp_path):
    text = f"from functools import partial\nconvert = partial(lambda native, record: native, {NATIVE!r})\n"
    (record,) = scan_with(tmp_path, text)
    assert record.value is not None


@pytest.mark.parametrize("indent", [None, 1])
def test_records_may_be_wrapped_under_any_name(indent, tmp_path):
    file = tmp_path / "museum.json"
    file.write_text(json.dumps({"version": 1, "items": [NATIVE, {**NATIVE, "id": "q2"}]}, indent=indent))
    settings = ImportSettings(converter=write_converter(tmp_path / "museum.py", "def convert(record): return record\n"))
    assert [record.value.id for record in scan_instances(file, settings=settings)] == ["q1", "q2"]


def test_the_dataset_is_named_where_the_instance_has_none(tmp_path):
    text = f"def convert(record):\n    return {NATIVE!r} | record\n"
    file = write_lines(tmp_path / "a.jsonl", {}, {"id": "q2", "benchmark": "museum"})
    settings = ImportSettings(converter=write_converter(tmp_path / "museum.py", text), dataset="mine")
    assert [record.value.benchmark for record in scan_instances(file, settings=settings)] == ["mine", "museum"]
    assert [record.rejected for record in scan_recorded_responses(file, settings=settings)] == ["no response"] * 2


@pytest.mark.parametrize(
    ("layout", "others", "problem"),
    [
        (RecordLayout.AUTO, {"columns": {"question": "q", "documents": "d"}}, "--converter and --map"),
        (RecordLayout.RAGAS, {}, "--converter and --format ragas"),
        (RecordLayout.MAPPED, {}, "--converter and --format mapped"),
        (RecordLayout.AUTO, {"model": "m"}, "--model: .* is read as converted, which holds no responses"),
        (RecordLayout.CONVERTED, {"trace": TraceMode.PROSE}, "--trace: .* holds no responses"),
        (RecordLayout.AUTO, {"cases": CaseSelection("span x")}, "--case, --question-at"),
        (RecordLayout.CONVERTED, {"converter": None}, "--format converted needs --converter FILE.py:FUNCTION"),
    ],
)
def test_settings_that_contradict_a_converter_are_refused(layout, others, problem, tmp_path):
    settings = ImportSettings(**({"converter": write_converter(tmp_path / "museum.py")} | others))
    with pytest.raises(SettingError, match=problem):
        resolve_file_layout(tmp_path / "a.jsonl", layout, settings)
