"""What is told where labels are missing: bounds, or that too little was judged, and never an artefact."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from eclose.diagnosis.number_format import format_percent_about, format_percent_between, format_percent_span
from eclose.diagnosis.shown_rate import RateStatus, classify_rate_status
from eclose.metrics.rates import Metric
from eclose.report.comparison import compare_with_base_run, describe_run_comparison, tabulate_run_comparison
from eclose.report.context import ReportContext
from eclose.report.document import make_rate_cell
from eclose.report.formats.html_page import render_report_page
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.latex import render_latex_report
from eclose.report.formats.markdown import render_markdown_report
from eclose.report.headline import build_report_headline
from eclose.report.marks import layout_difference_plot, layout_rate_plot
from eclose.report.sections import list_report_cautions
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate
from eclose.values.judgment import MAX_UNJUDGED_SHARE, Criterion
from tests.diagnosis.judged_responses import hold_cases
from tests.diagnosis.test_diagnose import FAILS, case
from tests.report.making import make_diagnosis
from tests.report.test_sections import CORRECTED

UNREADABLE = "invalid: Additional properties are not allowed"


def without_soundness(response_cases):
    judgment = replace(response_cases.judgment, steps=(), unjudged={Criterion.LOCAL_SOUNDNESS: UNREADABLE})
    return replace(response_cases, judgment=judgment)


def responses(unjudged):
    """60 responses, 28 of which fail as a whole; ``unjudged`` of them have no L, the others hold step by step."""
    response_cases = [case(number=number, closed=number % 60 >= 28) for number in range(60)]
    return [without_soundness(entry) if number < unjudged else entry for number, entry in enumerate(response_cases)]


@pytest.fixture(params=[56, 60], ids=["56 of 60", "60 of 60"])
def diagnosis(request):
    return make_diagnosis(responses(request.param))


def visible(html):
    """The words of a page without the explorer's data, scripts and glossary."""
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).replace("&nbsp;", " ").replace("\u00a0", " ")


def test_the_largest_type_says_that_too_little_was_judged(diagnosis):
    reliable, gap, unsound, undecided = build_report_headline(diagnosis, ReportContext())
    for statement in (reliable, gap, unsound):
        assert str(statement.figure) == "too little judged"
        assert statement.lead.startswith("to tell how many ")
        assert statement.whose == ""
        bounded = r"open for \d+ of 60 responses: the share lies between \d+\.\d % and \d+\.\d %, whatever"
        assert statement.unknown or re.search(bounded, statement.detail)
        assert statement.card is None
    if unsound.unknown:
        assert unsound.detail == "This is open for all 60 responses"
    assert (
        gap.detail == "This is open for 28 of 60 responses: the share lies between 0.0 % and 46.7 %, whatever they are"
    )
    assert undecided.kind == "undecided"


def test_no_format_gives_the_artefact(diagnosis):
    notes = ReportContext()
    html, text = render_report_page(diagnosis, responses(56), notes), render_markdown_report(diagnosis, context=notes)
    for words in (visible(html), text.replace("\u00a0", " "), render_latex_report(diagnosis, notes)):
        assert "No response is in the local-global gap" not in words
        assert not re.search(r"0\.0 ?\\?,?\\?% ?\[", words)
        assert "too little judged" in words
    for words in (visible(html), text.replace("\u00a0", " ")):
        assert "between 0.0 % and 46.7 %" in words
    output = json.loads(render_diagnosis_json(diagnosis, notes))
    rates = output["groups"][0]["rates"]
    for name in ("TRR", "LGG", "LSR"):
        assert rates[name]["value"] is None
        assert rates[name]["interval"] is None
        assert rates[name]["reading"] == "too_little_judged"
    assert rates["LGG"]["bounds"] == [0.0, 28 / 60]
    assert rates["A"]["value"] == 1.0
    assert [entry["figure"] for entry in output["headline"]][:3] == ["too little judged"] * 3


def test_corrected_rates_say_no_more_than_the_labels_they_rest_on(diagnosis):
    notes = ReportContext(corrected=CORRECTED, validation="On 40.", validated=True)
    for statement in build_report_headline(diagnosis, notes)[:3]:
        assert str(statement.figure) == "too little judged"
    assert "corrected by people" not in visible(render_report_page(diagnosis, responses(56), notes))
    assert [dot.label for dot in layout_rate_plot(diagnosis, notes).rows[0][2]][1:] == ["too little judged"] * 2


@pytest.mark.slow
def test_the_top_of_a_report_says_what_is_missing_and_why():
    (caution,) = [
        entry
        for entry in list_report_cautions(make_diagnosis(responses(56)), ReportContext())
        if "Too little judged" in entry
    ]
    assert caution == (
        "Too little judged: L (every step holds) has no label for 56 of 60 responses: "
        "the reply does not have the requested form (56)."
    )
    assert not [
        entry
        for entry in list_report_cautions(make_diagnosis(responses(12)), ReportContext())
        if "Too little judged" in entry
    ]


def test_a_few_missing_labels_give_bounds_beside_the_rate_of_the_judged():
    diagnosis = make_diagnosis(responses(6))
    reliable, gap, unsound = build_report_headline(diagnosis, ReportContext())[:3]
    assert str(gap.figure) == "between 36.7 % and 46.7 %"
    assert gap.detail.startswith("Of the 54 of 60 that are judged: 40.7 % [")
    assert gap.whose == "the judge's own figure, not validated"
    assert str(unsound.figure) == "between 0.0 % and 10.0 %"
    assert str(reliable.figure).startswith("53.3 % [")
    cell = make_rate_cell(diagnosis.overall, Metric.GAP_RATE)
    assert cell.text == "36.7 to 46.7"
    assert cell.details[0].startswith("40.7 [")


def test_a_card_has_one_number_and_its_interval_in_words():
    reliable, gap, unsound = build_report_headline(make_diagnosis(responses(6)), ReportContext())[:3]
    assert re.fullmatch(r"53\.3 % likely between \d+\.\d % and \d+\.\d %", str(reliable.card))
    # Ends that are ten points apart stay what they are, and the interval holds both of them.
    assert gap.card.value == "between 36.7 % and 46.7 %"
    low, high = map(float, re.findall(r"\d+\.\d", gap.card.interval))
    assert low < 36.7
    assert high > 46.7
    assert unsound.card.value == "between 0.0 % and 10.0 %"


def test_ends_within_a_point_are_about_one_number():
    texts = {
        (0.176, 0.181): "about 18 %", (0.184, 0.184): "18.4 %", (0.001, 0.005): "under 1 %", (0, 0): "0.0 %",
        (0.996, 0.999): "over 99 %", (0.17, 0.19): "between 17.0 % and 19.0 %",
    }  # fmt: skip
    assert {ends: format_percent_about(Interval(*ends)) for ends in texts} == texts


def test_cards_without_a_judged_response_are_left_out():
    nothing = [without_soundness(replace_labels(entry)) for entry in responses(0)]
    diagnosis = make_diagnosis(nothing)
    assert all(statement.unknown for statement in build_report_headline(diagnosis, ReportContext()))
    words = visible(render_report_page(diagnosis, nothing, ReportContext()))
    assert words.count("too little judged to tell how many") == 1
    assert "This is open for all 60 responses." in words
    assert "are undecided" not in words


def replace_labels(entry):
    """A case without labels of the whole."""
    judgment = replace(entry.judgment, aligned=None, closed=None, complete=None)
    return replace(entry, judgment=judgment)


def test_nothing_to_count_is_not_zero():
    undefined = make_diagnosis([case(number=number) for number in range(3)])
    assert classify_rate_status(undefined.overall.rates[Metric.GAP_RISK]) is RateStatus.UNDEFINED
    assert make_rate_cell(undefined.overall, Metric.GAP_RISK).text == "–"
    none = build_report_headline(undefined, ReportContext())[1]
    assert none.meaning == "No response is in the local-global gap."
    assert str(none.figure).startswith("0.0 % [0.0, ")
    # All of them are sound or not known to be: zero unsound is a bound, not a finding.
    assert str(build_report_headline(make_diagnosis(responses(6)), ReportContext())[2].figure) != "0.0 %"


@pytest.mark.parametrize(
    ("rate", "output"),
    [
        (Rate(0, 0), RateStatus.UNDEFINED),
        (Rate(3, 10), RateStatus.RATE),
        (Rate(3, 80, 20), RateStatus.BOUNDS),
        (Rate(3, 79, 21), RateStatus.TOO_LITTLE),
        (Rate(0, 0, 4), RateStatus.TOO_LITTLE),
    ],
)
def test_the_share_without_a_label_decides_what_is_told(rate, output):
    assert MAX_UNJUDGED_SHARE == 0.2
    assert classify_rate_status(rate) is output


def test_bounds_that_round_to_one_number_are_one_number():
    assert format_percent_between(Interval(0.6381, 0.6382)) == "63.8 %"
    assert format_percent_span(Interval(0.6381, 0.6382)) == "63.8"
    assert format_percent_span(Interval(0.25, 0.5)) == "25.0 to 50.0"


def test_a_comparison_with_too_little_judged_gives_no_difference():
    import numpy as np

    base = [case(number=number) for number in range(60)]
    against = compare_with_base_run(
        hold_cases(responses(56)), hold_cases(base), "old", rng=np.random.default_rng(1), resamples=20
    )
    output = [
        entry for entry in describe_run_comparison(against) if entry.startswith(("Reliability", "The local-global gap"))
    ]
    assert all("too little judged to compare; the difference lies between" in entry for entry in output)
    rows = {row[0].text: row for row in tabulate_run_comparison(against)[0].rows}
    assert [cell.text for cell in rows["LGG"][2:5]] == ["–", "0.0", "too little judged"]
    labels = {letter: dot.label for letter, _, dot in layout_difference_plot(against.comparison)[1]}
    assert labels["LGG"] == "too little judged"
    assert labels["A"] == "0.0"


@pytest.mark.slow
def test_shares_of_the_gap_have_wilson_intervals_beside_the_clustered_ones():
    response_cases = [case(number=number, closed=number >= 20, correct=number >= 20) for number in range(60)]
    response_cases += [case(steps=(FAILS,), number=number, closed=False, correct=False) for number in range(60, 80)]
    diagnosis = make_diagnosis(response_cases)
    cell = make_rate_cell(diagnosis.overall, Metric.GAP_SHARE)
    # 20 of 40, by hand: Wilson's interval is 35.2 to 64.8.
    assert cell.text == "50.0"
    assert "W [35.2, 64.8]" in cell.details
    assert "W [35.2, 64.8]" in make_rate_cell(diagnosis.overall, Metric.GAP_RISK).details
    assert not any(line.startswith("W") for line in make_rate_cell(diagnosis.overall, Metric.GAP_RATE).details)
    assert render_latex_report(diagnosis).count("W [35.2, 64.8]") == 4  # two rates, for the group and for all
    rates = json.loads(render_diagnosis_json(diagnosis))["groups"][0]["rates"]
    assert [round(end, 3) for end in rates["LggShare"]["wilson"]] == [0.352, 0.648]
