"""Which judgments belong to which responses: joined by id and by the hashes of the manifests, or refused by name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from eclose import testing
from eclose.cli.main import app
from eclose.demo import PEOPLE_FILE
from eclose.diagnosis.run_counts import count_runs
from eclose.errors import RecordError, SettingError, UserError
from eclose.files import jsonl
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.readers.judged_run import (
    JudgedCase,
    join_cases,
    read_judged_cases,
    read_run_records,
    refuse_reused_question_ids,
)
from eclose.testing import assert_reliable
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose_world.demo import write_demo_files

QUESTIONS = 12
NOT_JUDGED = "is not the file that judgments.jsonl was made from"
INSTANCE = Instance("i", "Where?", (Passage("0", "", "Arica."),), "Arica", benchmark="b")


def case(*, number=0, answer="Arica", closed=True):
    response = Response(f"r{number}", "i", Trace.of("x"), answer, ResponseSource("m"))
    labels = {"aligned": True, "closed": closed, "complete": True, "correct": True, "evidence_sufficient": True}
    return JudgedCase(INSTANCE, response, Judgment(f"r{number}", "judge", (StepJudgment(True, True),), **labels))


def put(folder, *cases):
    """Write a run without manifests, as labels from elsewhere have none."""
    folder.mkdir(parents=True)
    jsonl.write_records(folder / "instances.jsonl", [INSTANCE])
    jsonl.write_records(folder / "responses.jsonl", [each.response for each in cases])
    jsonl.write_records(folder / "judgments.jsonl", [each.judgment for each in cases])
    return folder


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    write_demo_files(folder, QUESTIONS)
    return folder


@pytest.fixture
def judged(demo, tmp_path):
    """A judged run with the manifests that judging writes."""
    return shutil.copytree(demo, tmp_path / "run")


def replace_answers(run):
    path = run / "responses.jsonl"
    jsonl.write_records(path, [replace(response, answer="WRONG") for response in jsonl.read_records(path, Response)])


@pytest.fixture
def stale(judged):
    """The same run after every answer was replaced under its old id."""
    replace_answers(judged)
    return judged


def command(*arguments, code=0):
    """Run a command; the text that it prints, or that main() would print of its error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    error = result.exception if isinstance(result.exception, UserError) else None
    exit_code = result.exit_code if error is None else error.exit_code
    assert exit_code == code, (result.output, result.exception)
    return " ".join(f"{result.output} {error or ''}".split())


COMMANDS = {
    "diagnose": ("diagnose", "{run}"),
    "report": ("report", "{run}"),
    "against": ("diagnose", "{other}", "--against", "{run}", "--out", "{run}/report"),
    "gate": ("gate", "{run}", "--min-trr", "0"),
    "label": ("label", "{run}", "--n", "5", "--no-browser"),
    "validate": ("judge", "validate", "{run}", "--verdicts", "{run}/" + PEOPLE_FILE),
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_judgments_of_other_responses_are_refused_by_name(stale, demo, arguments):
    output = command(*(part.format(run=stale, other=demo) for part in arguments), code=2)
    assert f"responses.jsonl {NOT_JUDGED}" in output
    assert "--allow-stale" in output


def test_a_test_refuses_them_too(stale):
    with pytest.raises(UserError, match=r"responses\.jsonl is not the file"):
        assert_reliable(stale, min_trr=0)


@pytest.mark.parametrize("name", ["instances.jsonl", "responses.jsonl", "judgments.jsonl"])
def test_each_file_of_a_run_is_checked(judged, name):
    assert (read_judged_cases(judged).stale, read_judged_cases(judged).checked) == ((), True)
    (judged / name).write_bytes((judged / name).read_bytes() + b"\n")
    with pytest.raises(UserError) as refused:
        read_judged_cases(judged)
    changed = (
        "judgments.jsonl was changed after it was written" if name == "judgments.jsonl" else f"{name} {NOT_JUDGED}"
    )
    assert changed in str(refused.value)
    (sentence,) = read_judged_cases(judged, allow_stale=True).stale
    assert changed in sentence
    assert sentence.count("sha256:") == 2


def test_questions_from_elsewhere_are_told_by_their_name(judged):
    manifest = json.loads((judged / "judgments.jsonl.manifest.json").read_text())
    manifest["inputs"]["other.jsonl"] = "sha256:" + "0" * 64
    del manifest["inputs"]["instances.jsonl"]
    (judged / "judgments.jsonl.manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"instances.jsonl is not the file .*other.jsonl sha256:00000000"):
        read_judged_cases(judged)


@pytest.mark.slow
def test_another_judge_must_have_judged_the_same_responses(demo, judged):
    replace_answers(judged)
    manifest = json.loads((judged / "judgments.jsonl.manifest.json").read_text())
    manifest["inputs"] = hash_files([judged / "instances.jsonl", judged / "responses.jsonl"])
    (judged / "judgments.jsonl.manifest.json").write_text(json.dumps(manifest))
    assert read_judged_cases(judged).stale == ()
    arguments = (
        "judge",
        "validate",
        demo,
        "--verdicts",
        demo / PEOPLE_FILE,
        "--out",
        judged / "v.json",
        "--against",
        judged,
    )
    assert f"{judged}: responses.jsonl {NOT_JUDGED}" in command(*arguments, code=2)
    assert f"STALE: {judged}: responses.jsonl {NOT_JUDGED}" in command(*arguments, "--allow-stale")


FIRST_FIGURE = {
    "report.html": "look right step by step",
    "report.md": "First: is the evidence enough?",
    "diagnosis.json": '"groups"',
    "junit.xml": "<testcase",
    "tables.tex": "\\begin",
}


@pytest.mark.slow
@pytest.mark.figures
def test_what_is_stale_is_said_first_in_every_output_of_a_report(judged):
    command("report", judged, "--format", "figures")
    fresh = (judged / "report" / "figures" / "rates.svg").read_bytes()
    replace_answers(judged)
    output = command("diagnose", judged, "--allow-stale")
    assert f"STALE: responses.jsonl {NOT_JUDGED}" in output
    for name, figure in FIRST_FIGURE.items():
        beginning = (judged / "report" / name).read_text().partition(figure)[0]
        assert f"responses.jsonl {NOT_JUDGED}" in beginning, name
    caption = (judged / "report" / "tables.tex").read_text().partition("\\caption")[2]
    assert f"responses.jsonl {NOT_JUDGED}" in caption
    assert (judged / "report" / "figures" / "rates.svg").read_bytes() != fresh
    assert json.loads((judged / "report" / "diagnosis.json").read_text())["stale"]
    suites = ElementTree.parse(judged / "report" / "junit.xml").getroot()
    assert suites.get("name").endswith("(stale judgments)")


@pytest.mark.slow
def test_a_report_of_fresh_judgments_says_nothing_of_it(judged):
    output = command("diagnose", judged)
    assert "STALE" not in output
    assert "not checked" not in output
    for name in ("report.html", "report.md", "junit.xml", "tables.tex"):
        assert "tale" not in (judged / "report" / name).read_text().replace("stale_", ""), name
    plain = json.loads((judged / "report" / "diagnosis.json").read_text())
    assert (plain["stale"], plain["provenance"], plain["rejected"]) == ([], "checked", {})


@pytest.mark.slow
def test_a_stale_base_is_told_with_its_name(demo, stale, tmp_path):
    output = command("diagnose", demo, "--against", stale, "--out", tmp_path / "out", "--allow-stale")
    assert "STALE: responses.jsonl" in output
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text())["stale"][0].startswith(str(stale))


@pytest.mark.slow
def test_gates_and_tests_say_so_when_they_pass_and_when_they_fail(stale):
    assert "passed, by stale judgments" in command("gate", stale, "--min-trr", "0", "--allow-stale")
    assert "failed, by stale judgments" in command("gate", stale, "--min-trr", "1", "--allow-stale", code=100)
    testing.gate_lines.clear()
    assert_reliable(stale, min_trr=0, allow_stale=True)
    (line,) = testing.gate_lines
    assert f"STALE: responses.jsonl {NOT_JUDGED}" in line
    with pytest.raises(AssertionError, match=r"STALE: responses\.jsonl"):
        assert_reliable(stale, min_trr=1, allow_stale=True)
    testing.gate_lines.clear()


@pytest.mark.slow
def test_a_validation_by_stale_judgments_is_told_by_later_reports(judged, demo):
    replace_answers(judged)
    output = command("judge", "validate", judged, "--verdicts", judged / PEOPLE_FILE, "--allow-stale")
    assert f"STALE: responses.jsonl {NOT_JUDGED}" in output
    shutil.copy(demo / "responses.jsonl", judged / "responses.jsonl")
    output = command("report", judged, "--format", "markdown")
    assert "STALE: validation.json: responses.jsonl" in output
    assert "validation.json" in (judged / "report" / "report.md").read_text()


@pytest.mark.slow
def test_verdicts_are_held_against_their_manifest(judged):
    verdicts = judged / PEOPLE_FILE
    assert "STALE" not in command("metrics", verdicts)
    verdicts.write_bytes(verdicts.read_bytes().replace(b"true", b"false", 1))
    sentence = f"{PEOPLE_FILE} was changed after it was written"
    assert sentence in command("metrics", verdicts, code=2)
    assert f"STALE: {sentence}" in command("metrics", verdicts, "--allow-stale")
    (message,) = json.loads(command("metrics", verdicts, "--allow-stale", "--json"))["stale"]
    assert sentence in message
    assert sentence in command("judge", "validate", judged, "--verdicts", verdicts, code=2)


def test_verdicts_of_another_response_with_the_same_id_are_refused(judged, tmp_path):
    lines = [json.loads(line) for line in (judged / PEOPLE_FILE).read_text().splitlines()]
    lines[0]["instance_id"] = "elsewhere"
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = command("judge", "validate", judged, "--verdicts", tmp_path / "v.jsonl", code=2)
    assert "the verdict is on question 'elsewhere'" in output


@pytest.mark.slow
def test_a_run_without_a_manifest_is_read_unchecked_and_says_so(tmp_path):
    run = put(tmp_path / "run", case(), case(number=1))
    read = read_judged_cases(run)
    assert (len(read.cases), read.left_out, read.stale, read.checked) == (2, (), (), False)
    assert "was not checked" in command("diagnose", run)
    assert json.loads((run / "report" / "diagnosis.json").read_text())["provenance"] == "unchecked"
    (run / "manifest.json").write_text('{"name": "of another program"}')
    assert not read_judged_cases(run).checked


def test_a_folder_that_was_written_at_once_is_checked_by_its_own_manifest(tmp_path):
    run = put(tmp_path / "run", case())
    files = sorted(run.iterdir())
    Manifest("annotate export", {}, {}, hash_files(files), RecordCounts(1, 1)).write(run / "manifest.json")
    assert read_judged_cases(run).checked
    jsonl.write_records(run / "responses.jsonl", [case(answer="Lima").response])
    with pytest.raises(UserError, match=NOT_JUDGED):
        read_judged_cases(run)


# --- Ids --------------------------------------------------------------------------------------------------------------

PARIS = Instance("1", "Capital of France?", (Passage("0", "", "Paris."),), "Paris", benchmark="europe")
LIMA = Instance("1", "Capital of Peru?", (Passage("0", "", "Lima."),), "Lima", benchmark="america")


def test_two_questions_with_one_id_are_refused_never_merged(tmp_path):
    run = put(tmp_path / "run", case())
    jsonl.write_records(run / "instances.jsonl", [INSTANCE, PARIS, LIMA])
    with pytest.raises(RecordError, match=r"instances.jsonl line 3: the id '1' is another question's in line 2"):
        read_judged_cases(run)
    assert "the id '1' is another question's" in command("gate", run, "--min-trr", "0", code=2)


def test_what_was_not_used_of_every_file_is_counted_and_told(tmp_path):
    run = put(tmp_path / "run", case(), case(number=1))
    for name, lines in {
        "instances.jsonl": [jsonl.encode_json_line(INSTANCE), b"{"],
        "responses.jsonl": [b'{"id": 7}', jsonl.encode_json_line(case().response)],
        "judgments.jsonl": [jsonl.encode_json_line(case().judgment), b"[]"],
    }.items():
        (run / name).write_bytes((run / name).read_bytes() + b"\n".join(lines) + b"\n")
    read = read_judged_cases(run)
    assert read.rejected == {
        "instances.jsonl": {"duplicate": 1, "not JSON": 1},
        "responses.jsonl": {"duplicate": 1, "wrong record": 1},
        "judgments.jsonl": {"duplicate": 1, "not JSON": 1},
    }
    assert read.left_out == (("responses.jsonl line 3", "it cannot be read (wrong record)"),)
    output = command("diagnose", run)
    assert "instances.jsonl: 2 not used (duplicate 1, not JSON 1)" in output
    assert json.loads((run / "report" / "diagnosis.json").read_text())["rejected"] == read.rejected


@pytest.mark.parametrize("fixture", ["traces/otel-genai.jsonl", "messages/openai-chat.jsonl"])
@pytest.mark.parametrize("arguments", [["diagnose"], ["gate", "--min-trr", "0.5"]], ids=["diagnose", "gate"])
def test_a_file_that_was_never_judged_names_the_command_that_judges_it(fixture, arguments):
    path = Path(__file__).parents[1] / "fixtures" / fixture
    result = CliRunner().invoke(app, [arguments[0], str(path), *arguments[1:]])
    assert isinstance(result.exception, UserError)
    assert f"Judge its responses first: eclose judge {path} --judge MODEL --out RUN." in str(result.exception)


def test_what_is_no_folder_of_a_run_is_named(demo, tmp_path):
    with pytest.raises(UserError, match=rf"is a file of a judged run\. Name its folder: {demo}$"):
        read_judged_cases(demo / "responses.jsonl")
    with pytest.raises(UserError, match="there is no such folder"):
        read_judged_cases(tmp_path / "typo")
    with pytest.raises(UserError, match=rf"holds no run.*eclose judge FILE --judge MODEL --out {tmp_path}\."):
        read_judged_cases(tmp_path)


def test_a_file_in_which_nothing_can_be_read_is_refused(tmp_path):
    run = put(tmp_path / "run", case())
    shutil.copy(run / "instances.jsonl", run / "responses.jsonl")
    with pytest.raises(RecordError, match="looks like an instance, not a response"):
        read_judged_cases(run)


def test_two_responses_with_one_id_are_refused_unless_it_is_known_which_was_judged(tmp_path):
    run = put(tmp_path / "run", case())
    jsonl.write_records(run / "responses.jsonl", [case().response, case(answer="Lima").response])
    with pytest.raises(RecordError, match=r"responses.jsonl line 2: the id 'r0' is another response's in line 1"):
        read_judged_cases(run)
    inputs = hash_files([run / "instances.jsonl", run / "responses.jsonl"])
    manifest = Manifest("judge", {}, inputs, hash_files([run / "judgments.jsonl"]), RecordCounts(1, 1))
    manifest.write(run / "judgments.jsonl.manifest.json")
    read = read_judged_cases(run)
    assert [each.response.answer for each in read.cases] == ["Arica"]
    assert read.left_out == (("r0", "an earlier response has the same id"),)
    with pytest.raises(RecordError, match="is another response's"):
        read_run_records(run)


def test_cases_are_joined_by_id_and_what_makes_none_is_told():
    first, second, third = (case(number=number).response for number in range(3))
    lost = replace(third, instance_id="nowhere")
    cases, left_out = join_cases({"i": INSTANCE}, [first, second, lost], {"r0": case().judgment})
    assert [case.response.id for case in cases] == ["r0"]
    assert left_out == [("r1", "it was not judged"), ("r2", "its question is missing")]


def test_nothing_is_counted_twice_or_lost_without_a_word():
    response = case().response
    judgments = {name: replace(case().judgment, response_id=name) for name in ("r0", "r7")}
    cases, left_out = join_cases({"i": INSTANCE}, [response, replace(response, answer="Lima")], judgments)
    assert [case.response.answer for case in cases] == ["Arica"]
    assert left_out == [("r0", "an earlier response has the same id"), ("r7", "it was judged, but is missing")]


def test_a_response_judged_twice_is_refused(tmp_path):
    run = put(tmp_path / "run", case())
    jsonl.write_records(run / "judgments.jsonl", [case().judgment, case(closed=False).judgment])
    with pytest.raises(RecordError, match="response r0: was judged twice"):
        read_judged_cases(run)


def test_runs_are_read_together(tmp_path):
    first, second = put(tmp_path / "one", case(number=0)), put(tmp_path / "two", case(number=1))
    read = count_runs([first, second]).case_set
    assert [case.response.id for case in read.cases] == ["r0", "r1"]
    assert read.left_out == ()


def test_one_id_in_two_runs_is_two_responses_called_after_their_runs(tmp_path):
    first = put(tmp_path / "one", case(number=0), case(number=1))
    second = put(tmp_path / "two", case(number=1, answer="Lima"), case(number=2))
    jsonl.write_records(second / "judgments.jsonl", [case(number=1).judgment])
    read = count_runs([first, second]).case_set
    assert [case.response.id for case in read.cases] == ["one/r0", "one/r1", "two/r1"]
    assert [case.judgment.response_id for case in read.cases] == ["one/r0", "one/r1", "two/r1"]
    assert read.left_out == (("two/r2", "it was not judged"),)


def test_runs_in_folders_called_alike_are_called_by_their_paths(tmp_path):
    runs = [put(tmp_path / name / "run", case(answer=name)) for name in ("a", "b")]
    assert [case.response.id for case in count_runs(runs).case_set.cases] == [f"{run}/r0" for run in runs]


def test_the_same_responses_twice_are_refused(tmp_path):
    first = put(tmp_path / "one", case(number=0))
    other = put(tmp_path / "other", case(number=0, closed=False), case(number=1))
    with pytest.raises(SettingError, match="named twice"):
        count_runs([first, tmp_path / "other" / ".." / "one"])
    with pytest.raises(UserError, match="every response of one is in other too"):
        count_runs([other, first])


def test_one_id_for_two_questions_is_refused():
    other = replace(case(), instance=replace(INSTANCE, question="When?"))
    elsewhere = replace(other, instance=replace(other.instance, benchmark="c"))
    refuse_reused_question_ids([case()], [case(), elsewhere])
    with pytest.raises(UserError, match="question i is 'Where\\?' in one run and 'When\\?' in another"):
        refuse_reused_question_ids([case()], [other])
