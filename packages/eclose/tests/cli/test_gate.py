"""``eclose gate``: three verdicts, three exit codes, and the figures that every other output has."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from eclose import testing
from eclose.api.results import diagnose
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.values.response import Response, Trace
from tests.judging.test_correct_rates import Run
from tests.test_testing import cases, unjudged, written


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    testing.gate_lines.clear()


def gate(*arguments):
    result = CliRunner().invoke(app, ["gate", *map(str, arguments)])
    return result.exit_code, result.output


def make_run(folder, made):
    folder.mkdir()
    return written(folder, made)


@pytest.mark.slow
def test_three_verdicts_have_three_exit_codes(tmp_path):
    run = make_run(tmp_path / "run", cases(95, closed=5))
    code, output = gate(run, "--min-trr", 0.85)
    assert (code, output.splitlines()[-1]) == (0, f"{run}: passed, 100 responses")
    code, output = gate(run, "--min-trr", 0.99)
    assert (code, output.splitlines()[1]) == (
        100,
        "failed: TRR at least 99.0 %: 95.0 % [88.7, 98.4], n = 100, the judge's own rate.",
    )
    code, output = gate(run, "--min-trr", 0.9)
    assert code == 101
    assert output.splitlines()[-1] == f"{run}: cannot tell, 100 responses"
    assert "would decide it" in output


@pytest.mark.slow
@pytest.mark.parametrize(("undecided", "code"), [("pass", 0), ("fail", 100)])
def test_what_cannot_be_told_can_be_made_to_pass_or_fail(tmp_path, undecided, code):
    run = make_run(tmp_path / "run", cases(95, closed=5))
    status, output = gate(run, "--min-trr", 0.9, "--undecided", undecided)
    assert status == code
    assert output.splitlines()[-1] == f"{run}: cannot tell (--undecided {undecided}), 100 responses"
    assert gate(run, "--min-trr", 0.99, "--undecided", "pass")[0] == 100


@pytest.mark.slow
def test_responses_without_a_judgment_do_not_pass(tmp_path):
    """950 of 1,000 responses were never judged: exit 0 and passed."""
    judged_cases = cases(50)
    run = make_run(tmp_path / "run", judged_cases)
    more = [Response(f"more{n}", judged_cases[0].instance.id, Trace.of("Yes."), "yes") for n in range(950)]
    jsonl.write_records(run / "responses.jsonl", [*(case.response for case in judged_cases), *more])
    code, output = gate(run, "--min-trr", 0.9)
    assert code == 101
    assert "whatever the 950 responses without a label are" in output


@pytest.mark.slow
def test_gate_report_and_pytest_print_one_figure(tmp_path):
    """The gate said 55.2 where report and pytest said 55.5: the interval is one, and its widening is named."""
    judged_cases = cases(60, closed=40)
    judged_cases[:3] = [unjudged(case, "refusal") for case in judged_cases[:3]]
    run = make_run(tmp_path / "run", judged_cases)
    _, output = gate(run, "--min-trr", 0.5)
    figure = re.search(r"TRR at least 50.0 %: (58\.8 % \[[\d., ]+\])", output)[1]
    assert re.search(r"; \[[\d., ]+\] whatever the 3 responses without a label are", output)
    with pytest.raises(AssertionError, match=re.escape(figure)):
        testing.assert_reliable(run, min_trr=0.5)
    assert f"TRR {figure}" in testing.gate_lines[-1]
    assert CliRunner().invoke(app, ["report", str(run), "-f", "json", "-f", "markdown"]).exit_code == 0
    rate = json.loads((run / "report" / "diagnosis.json").read_text())["groups"][0]["rates"]["TRR"]
    low, high = rate["interval"]
    assert f"{100 * rate['value']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]" == figure


def validated_run(folder, labels):
    """60 judged responses, of which the judge fails every fourth, and people pass a fifth of these."""
    Run(folder).validate(labels)
    return folder


@pytest.mark.slow
def test_limits_are_held_against_corrected_rates_where_there_are_enough_labels(tmp_path):
    run = validated_run(tmp_path / "run", 40)
    code, output = gate(run, "--min-trr", 0.5)
    assert code == 0
    assert "corrected by 40 labels of people (the judge's own rate: 75.0 % [62.1, 85.3])" in output
    few = validated_run(tmp_path / "few", 29)
    _, output = gate(few, "--min-trr", 0.5)
    assert "75.0 % [62.1, 85.3], n = 60, the judge's own rate." in output
    _, named = gate(few, "--min-trr", 0.5, "--validation", run / "validation.json")
    assert "corrected by 40 labels of people" in named
    testing.assert_reliable(run, min_trr=0.5)
    corrected = re.search(r"TRR at least 50.0 %: (\d\d\.\d % \[[\d., ]+\])", gate(run, "--min-trr", 0.5)[1])[1]
    assert f"TRR {corrected} corrected" in testing.gate_lines[-1]


@pytest.mark.slow
def test_a_drop_against_a_base_run_is_held_against_its_limit(tmp_path):
    run, base = make_run(tmp_path / "run", cases(380, closed=20)), make_run(tmp_path / "base", cases(390, closed=10))
    code, output = gate(run, "--against", base, "--max-trr-drop", 0.08, "--max-lgg-rise", 0.02)
    assert code == 101
    assert f"TRR at most 8.0 points below {base}: −2.5 points [" in output
    assert "2 limits are held at once" in output
    assert gate(run, "--against", base, "--max-trr-drop", 0.08)[0] == 0
    assert gate(base, "--against", run, "--max-trr-drop", 0)[0] == 0


def test_a_base_run_without_a_limit_is_refused(tmp_path):
    run = make_run(tmp_path / "run", cases(9, closed=1))
    result = CliRunner().invoke(app, ["gate", str(run), "--against", str(run), "--min-trr", "0.5"])
    assert "--max-trr-drop" in str(result.exception)


_NOUNS, _VERBS = "responses|questions|labels|traces|cases|answers", "are|have|hold|pursue"
ONE_OF_MANY = re.compile(
    rf"(?<![\d.,])1 (?:more |judged )?(?:{_NOUNS})\b"
    rf"|(?<![\d.,])(?<!of )1 (?:of [\d,]+ )?(?:response |question )?(?:without a label )?(?:{_VERBS})\b"
)
"""A plural noun or verb behind a single one."""


def find_wrong_plurals(text):
    return [text[max(0, match.start() - 60) : match.end() + 40] for match in ONE_OF_MANY.finditer(text)]


@pytest.mark.parametrize("kind", ["reliable", "closed", "refused"])
def test_a_single_response_is_written_in_the_singular(tmp_path, kind):
    """In the gate, the report in every format, the comparison and the tests: "1 responses" was printed."""
    single = cases(0, closed=1) if kind == "closed" else cases(1)
    run = make_run(tmp_path / "run", [unjudged(single[0], "refusal")] if kind == "refused" else single)
    base = make_run(tmp_path / "base", cases(1))
    printed = gate(run, "--min-trr", 0.85, "--max-lgg", 0.1, "--max-unjudged-share", 0.5)[1]
    printed += gate(run, "--against", base, "--max-drop", 0.1)[1]
    result = CliRunner().invoke(app, ["diagnose", str(run), "--against", str(base)])
    assert result.exit_code == 0, (result.output, result.exception)
    texts = {"printed": printed + result.output, "repr": repr(diagnose(run))}
    try:
        testing.assert_reliable(run, min_trr=0.9)
    except AssertionError as error:
        texts["assertion"] = str(error)
    texts["lines"] = "\n".join(map(str, testing.gate_lines))
    files = [path for path in (run / "report").iterdir() if path.suffix in {".md", ".xml", ".tex"}]
    texts |= {path.name: path.read_text() for path in files}
    html = (run / "report" / "report.html").read_text()
    texts["report.html"] = re.sub(r"<[^>]+>", "", re.sub(r"<(script|style)[^>]*>.*?</\1>", "", html, flags=re.S))
    assert len(texts) >= 6
    wrong = [f"{name}: {passage!r}" for name, text in texts.items() for passage in find_wrong_plurals(text)]
    assert not wrong, "\n".join(wrong)
