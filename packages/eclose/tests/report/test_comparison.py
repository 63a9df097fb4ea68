"""A run held against another: what is said of it, in every format, against counts made by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from eclose.diagnosis.number_format import format_signed_interval, format_signed_percent
from eclose.errors import UserError
from eclose.report.comparison import compare_with_base_run, describe_run_comparison, tabulate_run_comparison
from eclose.report.context import ReportContext
from eclose.report.formats.html_page import make_explorer_payload, render_report_page
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.latex import render_latex_report
from eclose.report.formats.markdown import render_markdown_report
from eclose.report.marks import layout_difference_plot
from eclose.stats.intervals import Interval
from eclose.values.instance import Passage
from tests.diagnosis.judged_responses import hold_cases
from tests.diagnosis.test_diagnose import FAILS, case
from tests.report.making import make_diagnosis
from tests.report.test_explorer_data import unpack


def asked(number, response="r", benchmark="b", **labels):
    """A response to a question of its own."""
    response_case = case(**labels)
    instance = replace(response_case.instance, id=f"q{number}", benchmark=benchmark)
    name = f"{response}{number}"
    return replace(
        response_case,
        instance=instance,
        response=replace(response_case.response, id=name, instance_id=instance.id),
        judgment=replace(response_case.judgment, response_id=name),
    )


NOW = [
    asked(0), asked(1), asked(2, aligned=False), asked(3, closed=None), asked(4, steps=(FAILS,)),
    asked(5, correct=False), asked(6),
]  # fmt: skip
BEFORE = [
    asked(0, closed=False),
    asked(1),
    asked(2),
    asked(3),
    asked(4, steps=(FAILS,)),
    asked(5),
    asked(9, closed=False),
]


def held(now=NOW, before=BEFORE, left_out=()):
    sides = (hold_cases(now), hold_cases(before, left_out=left_out))
    return compare_with_base_run(*sides, "runs/base", rng=np.random.default_rng(1), resamples=200)


@pytest.fixture(scope="module")
def against():
    return held()


def test_what_moved_and_what_was_left_aside_is_said(against):
    output = describe_run_comparison(against)
    assert output[0] == "Compared on 6 questions that both runs answer: 6 responses here, 6 there."
    assert (
        output[1]
        == "Not compared: 1 question (1 response) of this run only; 1 question (1 response) of the other run only."
    )
    # 3 of 5 against 4 of 6; the fourth is not judged.
    assert output[2].startswith("Reliability (TRR): −6.7 points [")
    assert output[2].endswith(
        "no clear change (60.0 % after 66.7 % of the judged; the difference lies between −16.7 and 0.0 points)."
    )
    assert output[5] == (
        "Of 6 pairs of responses 3 stay in their class; 1 became reliable, 1 no longer is, "
        "1 is decided in one run only."
    )
    assert describe_run_comparison(held(BEFORE, BEFORE))[1] == "Both runs answer the same questions."


def test_a_clear_difference_is_called_one():
    many = range(30)
    good, bad = [asked(number) for number in many], [asked(number, closed=False) for number in many]
    assert ", higher (100.0 % after 0.0 %)." in describe_run_comparison(held(good, bad))[2]
    assert ", lower (0.0 % after 100.0 %)." in describe_run_comparison(held(bad, good))[2]


def test_an_undefined_rate_has_no_difference():
    unknown = [asked(0, closed=None, correct=None)]
    output = describe_run_comparison(held(unknown, [asked(0)]))
    assert output[4] == "Accuracy (Acc): not defined in this run, so there is no difference."
    rows = {row[0].text: row for row in tabulate_run_comparison(held(unknown, [asked(0)]))[0].rows}
    assert rows["Acc"][4].text == "undefined"
    assert rows["LggRisk"][4].text == "undefined"
    output = json.loads(render_diagnosis_json(make_diagnosis(NOW), ReportContext(base=held(unknown, [asked(0)]))))
    assert output["comparison"]["groups"][0]["differences"]["Acc"]["value"] is None


def test_responses_without_a_partner_are_counted():
    twice = [*NOW, asked(1, response="s")]
    assert describe_run_comparison(held(twice))[5].endswith(
        "Without a partner: 1 response of this run, 0 of the other; they count in the rates."
    )


def test_what_else_differs_is_a_caution():
    other = [replace(entry, judgment=replace(entry.judgment, judge="somebody")) for entry in BEFORE]
    other[0] = replace(other[0], instance=replace(other[0].instance, evidence=(Passage("1", "", "Lima."),)))
    assert held(before=other, left_out=[("x", "it was not judged")]).cautions == (
        "This run was judged by judge, the other one by somebody: a difference may come from the judges.",
        "1 shared question has other passages in the other run: a difference may come from them.",
        "Fewer than 20 shared questions: take the intervals as a rough hint, not as 95 %.",
        "1 response of the other run left out: it was not judged.",
    )
    many = [asked(number) for number in range(20)]
    assert held(many, many).cautions == ()


def test_one_id_for_two_questions_is_refused():
    other = replace(BEFORE[0], instance=replace(BEFORE[0].instance, question="Who?"))
    with pytest.raises(UserError, match="question q0 is 'Where\\?' in one run and 'Who\\?' in another"):
        held(before=[other])


def test_tables_hold_every_difference_and_every_transition(against):
    differences, transitions = tabulate_run_comparison(against)
    assert [row[0].text for row in differences.rows] == [
        "Acc", "LSR", "A", "C", "GSR", "TRR", "LGG", "LggShare", "LggRisk"
    ]  # fmt: skip
    trr = differences.rows[5]
    assert [cell.text for cell in trr] == ["TRR", "reliability", "60.0", "66.7", "−6.7", "−16.7 to 0.0"]
    assert (trr[2].details, trr[3].details) == (("n 5 +1",), ("n 6",))
    assert transitions.heads == ("was", "reliable", "path deviation", "unsound step", "undecided", "all")
    assert [[cell.text for cell in row] for row in transitions.rows] == [
        ["reliable", "2", "1", "–", "1", "4"],
        ["answer decoupling", "1", "–", "–", "–", "1"],
        ["unsound step", "–", "–", "1", "–", "1"],
        ["all", "3", "1", "1", "1", "6"],
    ]
    both = NOW + [asked(number, benchmark="c") for number in range(3)]
    by_dataset = tabulate_run_comparison(held(both, both))[1]
    assert [row[0].text for row in by_dataset.rows] == ["all shared questions", "b", "c"]
    assert {len(row) for row in by_dataset.rows} == {len(by_dataset.heads)}


def test_equal_runs_carry_a_mark_and_an_interval():
    rows = {row[0].text: row for row in tabulate_run_comparison(held(BEFORE, BEFORE))[0].rows}
    assert rows["TRR"][4].text == "0.0"
    assert rows["TRR"][4].details[0].startswith("[−")
    assert rows["TRR"][4].details[0].endswith("]*")


def test_every_transition_leads_to_as_many_responses(against):
    index = unpack(make_explorer_payload(NOW, against.before(NOW)).index)
    columns = {facet["name"]: facet for facet in index["facets"]}

    def chosen(facet, option):
        (mask,) = [bits for name, _, bits in columns[facet]["options"] if name == option]
        return {position for position, bits in enumerate(columns[facet]["column"]) if bits & mask}

    linked = [cell for row in tabulate_run_comparison(against)[-1].rows for cell in row if cell.show]
    assert len(linked) == 8
    for cell in linked:
        sets = [chosen(*part.split("=")) for part in cell.show.split("&")]
        assert len(set.intersection(*sets)) == int(cell.text), cell
    assert len(chosen("before", "none")) == 1
    assert len(chosen("before", "changed")) == len(against.comparison.changed) == 3
    assert "before" not in [facet["name"] for facet in unpack(make_explorer_payload(NOW).index)["facets"]]


def test_undecided_for_another_reason_is_no_change():
    now, before = [asked(0, closed=None)], [asked(0, aligned=None)]
    comparison = held(now, before)
    assert comparison.comparison.changed == ()
    (facet,) = [
        entry
        for entry in unpack(make_explorer_payload(now, comparison.before(now)).index)["facets"]
        if entry["name"] == "before"
    ]
    assert [name for name, _, _ in facet["options"]] == ["undecided"]


def test_every_format_tells_the_comparison(against):
    notes, diagnosis = ReportContext(base=against), make_diagnosis(NOW)
    response_case = render_report_page(diagnosis, NOW, notes)
    assert '<section id="against">' in response_case
    assert 'href="#before=reliable&amp;outcome=gap_path_deviation">1</a>' in response_case
    assert '<section id="against">' not in render_report_page(diagnosis, NOW)
    text = render_markdown_report(diagnosis, NOW, notes)
    assert "## Compared with runs/base" in text
    assert "| answer decoupling | 1 | – | – | – | 1 |" in text
    table = render_latex_report(diagnosis, notes)
    assert r"TRR & 60.0 & 5 & 66.7 & 6 & $-6.7$ & {[" in table
    assert r"\label{tab:transitions}" in table
    assert table.count("{") == table.count("}")


def test_json_holds_the_whole_comparison(against):
    output = json.loads(render_diagnosis_json(make_diagnosis(NOW), ReportContext(base=against)))["comparison"]
    assert list(output) == [
        "against", "cautions", "only_here", "only_there", "groups", "pairs", "transitions", "changed"
    ]  # fmt: skip
    assert output["against"] == "runs/base"
    assert output["only_here"] == {"questions": 1, "responses": 1, "without_partner": 0}
    trr = output["groups"][0]["differences"]["TRR"]
    assert list(trr) == ["here", "there", "value", "interval", "undefined", "constant", "bounds"]
    assert trr["here"] == {"hits": 3, "n": 5, "unjudged": 1, "value": 0.6}
    assert trr["value"] == pytest.approx(3 / 5 - 4 / 6)
    assert {"before": "reliable", "after": "gap_path_deviation", "responses": 1} in output["transitions"]
    assert output["changed"][0] == {
        "benchmark": "b", "question": "q0", "response": "r0", "response_there": "r0", "before": "gap_answer_decoupling",
        "after": "reliable",
    }  # fmt: skip


def test_dots_of_differences_lie_within_their_whiskers(against):
    _, rows = layout_difference_plot(against.comparison)
    drawn = [dot for _, _, dot in rows if dot.value is not None]
    assert len(drawn) >= 7
    for dot in drawn:
        assert 0 <= dot.whisker[0] <= dot.value <= dot.whisker[1] <= 100
    _, same = layout_difference_plot(held(BEFORE, BEFORE).comparison)
    assert {dot.value for _, _, dot in same if dot.value is not None} == {50.0}


def test_a_difference_has_a_sign_unless_it_is_none():
    assert [format_signed_percent(value) for value in (0.042, -0.042, 0.0, -0.0004, None)] == [
        "+4.2",
        "−4.2",
        "0.0",
        "0.0",
        "–",
    ]
    assert format_signed_interval(Interval(-0.013, 0.097)) == "[−1.3, +9.7]"
    assert format_signed_interval(None) == ""
