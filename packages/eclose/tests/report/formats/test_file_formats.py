"""Markdown, LaTeX, JUnit and JSON: what they say, and that no value says it for them."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from eclose.diagnosis.number_format import add_no_break_spaces, to_one_line
from eclose.metrics.rates import Metric
from eclose.report import figures
from eclose.report.context import NOT_VALIDATED, ReportContext
from eclose.report.formats.file_formats import ReportFormat
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.junit import render_responses_junit
from eclose.report.formats.latex import escape_latex as latex_escape
from eclose.report.formats.latex import render_latex_report
from eclose.report.formats.markdown import escape_markdown as markdown_escape
from eclose.report.formats.markdown import render_markdown_report
from eclose.report.headline import build_report_headline
from eclose.report.write import write_report_files
from eclose.stats.intervals import Estimate, Interval
from tests.diagnosis.test_diagnose import FAILS, case
from tests.report.hostile import PAYLOADS, hostile_case, hostile_cases, hostile_notes
from tests.report.making import MODELS, make_diagnosis, run_in_processes
from tests.report.test_sections import agreeing, repeated

ANY_TEXT = st.one_of(st.text(st.characters(codec=None)), st.sampled_from(PAYLOADS))
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(text):
    """What a reader of Markdown sees of a paragraph; None where it is more than plain words."""
    blocks = MARKDOWN.parse(text)
    if [block.type for block in blocks] != ["paragraph_open", "inline", "paragraph_close"]:
        return None
    if any(child.type not in ("text", "text_special", "softbreak") for child in blocks[1].children):
        return None
    return "".join(child.content for child in blocks[1].children)


@given(ANY_TEXT)
def test_markdown_shows_any_text_as_it_is(text):
    if expected := to_one_line(text):
        # As it stands in a report: after other words of a line.
        assert shown(f"x {markdown_escape(text)}") == f"x {expected}"


@pytest.mark.slow
@given(st.one_of(ANY_TEXT, st.text("-+=#>.)1*_ a\t:|`~", max_size=6)))
def test_markdown_shows_any_text_as_it_is_at_the_beginning_of_a_line(text):
    for start in ("- ", "# ", "> "):
        inner = [entry for entry in MARKDOWN.parse(start + markdown_escape(text)) if entry.type == "inline"]
        assert len(MARKDOWN.parse(start + markdown_escape(text))) == len(
            MARKDOWN.parse(f"{start}{'x' if inner else ''}")
        )
        assert "".join(child.content for entry in inner for child in entry.children) == to_one_line(text)


def test_numbers_and_names_stay_readable_in_markdown():
    assert markdown_escape("gpt-4.1 (n = 12, +3)") == "gpt-4.1 (n = 12, +3)"
    assert markdown_escape("- a") == "\\- a"
    assert markdown_escape("12. a") == "12\\. a"
    assert markdown_escape("77.0") == "77.0"
    assert markdown_escape("3)") == "3\\)"
    assert markdown_escape("https://x.example www.x.example") == "https\\://x.example www\\.x.example"


@given(ANY_TEXT)
def test_a_cell_of_a_markdown_table_holds_any_text(text):
    row = f"| {markdown_escape(text)} | end |"
    cells = [block for block in MARKDOWN.parse(f"| a | b |\n| --- | --- |\n{row}") if block.type == "inline"]
    assert ["".join(child.content for child in cell.children) for cell in cells] == ["a", "b", to_one_line(text), "end"]


@pytest.mark.slow
@pytest.mark.parametrize("text", PAYLOADS, ids=range(len(PAYLOADS)))
def test_markdown_keeps_its_tables_whatever_the_names(text):
    def shape(word):
        hostile = [hostile_case(number, word) for number in range(4)]
        blocks = MARKDOWN.parse(
            render_markdown_report(make_diagnosis(hostile, resamples=5), hostile, hostile_notes(word))
        )
        assert not any(
            child.type in ("link_open", "image", "html_inline") for b in blocks for child in b.children or ()
        )
        return [block.type for block in blocks]

    assert shape(text) == shape("harmless")


def test_markdown_says_what_the_page_says(diagnosis, cases):
    text = render_markdown_report(diagnosis, cases)
    assert NOT_VALIDATED.replace(".", "\\.") in text
    reliable = build_report_headline(diagnosis, ReportContext())[0]
    assert (
        f"**{add_no_break_spaces(str(reliable.figure))} are reliable** (the judge's own figure, not validated)" in text
    )
    assert f"To the judge {reliable.count} responses" in text
    assert text.index("## The metrics, by model") < text.index("## The metrics, by dataset and model")
    assert not re.search(r"\d %", text)
    assert "## Labels L, A and C together" in text
    assert text == render_markdown_report(diagnosis, cases)


_ALLOWED = re.compile(
    r"\\textbackslash\{\}|\\textascii(?:circum|tilde|grave)\{\}|\\text(?:less|greater|bar|quotedbl|quotesingle|periodcentered|endash|minus|pm)\{\}"
    r"|\\[{}$&#%_]|\{-\}"
)


@given(ANY_TEXT)
def test_latex_has_no_command_comment_or_column_of_its_values(text):
    remainder = _ALLOWED.sub("", latex_escape(text))
    assert not re.search(r"[\\{}$&#%_^~<>|\"'`\n\r\x00-\x1f]|--", remainder)


@pytest.mark.parametrize("text", PAYLOADS, ids=range(len(PAYLOADS)))
def test_latex_keeps_its_rows_whatever_the_names(text):
    def shape(word):
        hostile = [hostile_case(number, word) for number in range(4)]
        output_text = render_latex_report(make_diagnosis(hostile, resamples=5), hostile_notes(word))
        return [(line.count(" & "), line.endswith(r" \\")) for line in output_text.splitlines()]

    assert shape(text) == shape("harmless")


def test_latex_has_the_papers_columns_and_balanced_braces(diagnosis):
    text = render_latex_report(diagnosis, ReportContext(corrected={Metric.GAP_RATE: Estimate(0.1, Interval(0.0, 0.2))}))
    assert "Dataset & Model & $n$ & Acc & LSR & A & C & GSR & TRR & LGG & LggShare & LggRisk \\\\" in text
    for mark in (r"\toprule", r"\midrule", r"\bottomrule", r"\label{tab:diagnosis}", r"\emph{corrected}"):
        assert mark in text
    assert text.count("{") == text.count("}")
    rows = [line for line in text.split(r"\bottomrule")[0].splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {11}
    assert r"world{-}2wiki" in text
    # Models over all datasets, then each dataset with all models before its own; the corrected row before the judge's.
    rows = [line.split(" & ")[:2] for line in rows]
    assert rows[1][0] == r"\emph{all datasets}"
    assert rows[4][0] == ""
    assert [r"world{-}2wiki", r"\emph{all models}"] in rows
    named = [row for row in rows if row[0] == r"\textbf{All}"]
    assert named == [[r"\textbf{All}", r"\emph{corrected}"], [r"\textbf{All}", r"\emph{the judge alone}"]]


def test_no_table_of_the_latex_is_wider_than_the_text(diagnosis):
    text = render_latex_report(diagnosis)
    tables = text.split(r"\begin{tabular}")
    assert len(tables) > 3
    fits = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" + "\n"
    assert all(before.endswith(fits) for before in tables[:-1])
    assert text.count("\\end{tabular}}\n") == len(tables) - 1


def test_agreement_and_steadiness_are_told_in_every_format():
    repeated_cases = [repeated(0, A=(True, False, True)), repeated(1, A=(True, True))]
    diagnosis, notes = make_diagnosis(repeated_cases), ReportContext(validation="On 40.", agreement=agreeing(4))
    output = json.loads(render_diagnosis_json(diagnosis, notes))
    a = next(row for row in output["agreement"] if row["label"] == "A")
    assert (a["n"], a["value"], a["misses"], a["false_alarms"]) == (40, 0.9, 4, 0)
    assert a["missed"]["value"] == 1.0
    assert output["flips"]["A"] | {"interval": None} == {
        "responses": 2, "flipped": 1, "value": 0.5, "interval": None, "pairs": 4, "differing": 2, "pair_rate": 0.5
    }  # fmt: skip
    assert output["same_family"] == []
    text = render_markdown_report(diagnosis, repeated_cases, notes)
    assert "least about A (pursues the question)" in text
    assert "## How steady the judge is" in text
    assert "| A | pursues the question | 2 | 1 | 50.0 [" in text
    tex = render_latex_report(diagnosis, notes)
    assert r"\label{tab:agreement}" in tex
    assert r"\label{tab:flips}" in tex
    assert not re.search(r"\d \\%", tex)
    properties = {
        entry.get("name"): entry.get("value") for entry in parsed(repeated_cases, notes).findall(".//property")
    }
    assert properties["flips A"] == "1 of 2 responses got both answers"
    assert "least about A" in properties["validation"]
    once = render_latex_report(make_diagnosis([case()]))
    assert "tab:flips" not in once
    assert "tab:agreement" not in once


def parsed(cases, notes=None):
    return ElementTree.fromstring(render_responses_junit(cases, notes).encode())


def test_junit_has_a_test_for_each_response(cases, diagnosis):
    root = parsed(cases)
    tests = root.findall(".//testcase")
    groups = diagnosis.overall.composition.groups
    assert {test.get("name") for test in tests} == {entry.response.id for entry in cases}
    assert len(tests) == int(root.get("tests")) == len(cases)
    failures = groups["gap"] + groups["locally_unsound"]
    assert len(root.findall(".//failure")) >= failures
    assert int(root.get("failures")) == len(root.findall(".//failure"))
    assert int(root.get("skipped")) == len(root.findall(".//skipped"))
    passing = [test for test in tests if not len(test)]
    assert len(passing) == groups["reliable"]
    assert {test.get("classname").split(".")[1] for test in tests} == {entry.response.source.model for entry in cases}


def test_junit_says_why_a_response_fails_or_is_skipped():
    unknown = case(number=2, closed=None)
    root = parsed([case(steps=(FAILS,), number=1), unknown])
    (failure,) = root.findall(".//failure")
    assert failure.get("message") == "Step 1 does not hold."
    assert failure.get("type") == "unsound step"
    assert "Question: Where?" in failure.text
    assert root.find(".//skipped").get("message") == "not judged"
    assert NOT_VALIDATED in root.find(".//property").get("value")


@pytest.mark.slow
@given(ANY_TEXT)
def test_junit_is_xml_whatever_the_text(text):
    tests = parsed([hostile_case(1, text)], hostile_notes(text)).findall(".//testcase")
    # The second is a response of the notes that was left out.
    assert [[child.tag for child in test] for test in tests] == [["failure"], ["skipped"]]


def test_json_holds_every_rate_with_its_interval(diagnosis):
    output = json.loads(render_diagnosis_json(diagnosis, ReportContext(left_out=[("r", "it was not judged")])))
    first = output["groups"][0]
    rate = diagnosis.overall.rates[Metric.GAP_RATE]
    assert list(first["rates"]) == [metric.value for metric in Metric]
    assert first["rates"]["LGG"]["hits"] == rate.hits
    assert first["rates"]["LGG"]["n"] == rate.n
    assert first["rates"]["LGG"]["interval"] == list(diagnosis.overall.estimates[Metric.GAP_RATE].interval)
    assert first["rates"]["LGG"]["bounds"] == list(rate.bounds)
    assert (first["benchmark"], first["model"]) == (None, None)
    assert output["groups"][1]["benchmark"] == diagnosis.groups[1].group[0]
    assert [(row["benchmark"], row["model"]) for row in output["by_model"]] == [
        (None, model) for model in sorted(MODELS)
    ]
    assert all(row["model"] is None and row["benchmark"] for row in output["by_dataset"])
    assert sum(row["responses"] for row in output["by_model"]) == output["responses"]
    assert sum(row["responses"] for row in output["joint"]) == output["responses"]
    assert output["left_out"] == [{"response": "r", "reason": "it was not judged"}]
    assert output["validation"] is None


def test_the_keys_of_the_json_stay(diagnosis):
    output = json.loads(render_diagnosis_json(diagnosis))
    assert output["format"] == "eclose-diagnosis-1"
    assert list(output) == [
        "format", "title", "about", "stale", "selected", "provenance", "judges", "headline", "validation", "validated",
        "settled_by_people", "corrected", "agreement", "responses", "questions", "without_trace", "unread_traces",
        "prose_traces", "stratum", "apart", "readings",
        "groups", "by_model", "by_dataset", "by_evidence", "joint", "violations", "local_failures", "matching",
        "alias_matching", "correct_but_insufficient",
        "incorrect_but_sufficient", "inconsistent", "abstentions", "unjudged", "flips", "same_family", "left_out",
        "rejected",
        "comparison",
    ]  # fmt: skip
    assert output["comparison"] is None
    assert list(output["groups"][0]) == [
        "benchmark", "model", "responses", "questions", "rates", "trace_groups", "failures", "gap_failures"
    ]  # fmt: skip
    assert list(output["groups"][0]["rates"]["TRR"]) == [
        "hits", "n", "unjudged", "value", "interval", "undefined", "method", "bounds", "reading", "of_judged", "wilson"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.figures
def test_all_files_are_written_whole_and_equal_for_equal_input(tmp_path):
    hostile = hostile_cases()[::33]  # a surrogate is among them; drawing all of them takes a minute
    diagnosis = make_diagnosis(hostile, resamples=5)
    written = [
        write_report_files(diagnosis, hostile, tmp_path / name, hostile_notes("\ud800")) for name in ("one", "two")
    ]
    figures = [
        f"figures/{name}.{kind}"
        for name in ("rates", "metrics", "flow", "failures", "differences")
        for kind in ("pdf", "svg")
    ]
    assert list(written[0]) == ["report.html", "report.md", "diagnosis.json", "junit.xml", "tables.tex", *figures]
    for name, path in written[0].items():
        assert path.read_bytes() == written[1][name].read_bytes()
    there = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert sorted(there) == sorted(written[0].values())


def test_only_what_is_asked_for_is_written(tmp_path):
    diagnosis = make_diagnosis([case()], resamples=5)
    assert list(write_report_files(diagnosis, [case()], tmp_path, formats=[ReportFormat.JSON])) == ["diagnosis.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["diagnosis.json"]


@pytest.mark.figures
def test_without_matplotlib_everything_else_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda _: None)
    written = write_report_files(make_diagnosis([case()], resamples=5), [case()], tmp_path)
    assert list(written) == ["report.html", "report.md", "diagnosis.json", "junit.xml", "tables.tex"]
    assert figures.explain_missing_figures().endswith("pip install 'eclose[figures]'")


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_process():
    """Sets and hashes of strings are ordered otherwise in every process."""
    program = (
        "import hashlib; from tests.report.hostile import *; "
        "from tests.report.making import make_diagnosis; "
        "from eclose.report.formats.html_page import render_report_page; "
        "from eclose.report.formats.junit import render_responses_junit; "
        "cases = hostile_cases(); diagnosis = make_diagnosis(cases, resamples=5); "
        "files = render_report_page(diagnosis, cases) + render_responses_junit(cases); "
        "print(hashlib.sha256(files.encode()).hexdigest())"
    )
    assert len(run_in_processes(program)) == 1
