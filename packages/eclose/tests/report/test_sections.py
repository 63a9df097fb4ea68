"""What is said in words, against counts made by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eclose.diagnosis.label_table import TraceStratum
from eclose.diagnosis.number_format import add_no_break_spaces
from eclose.metrics.judge_against_people import ValidationCase, validate_judge
from eclose.metrics.rates import Metric
from eclose.report.context import NOT_VALIDATED, ReportContext
from eclose.report.document import (
    ReportTableCell,
    build_judge_agreement_table,
    build_judge_flips_table,
    build_metrics_tables,
    build_report_tables,
    list_group_kinds,
)
from eclose.report.formats.latex import render_latex_report
from eclose.report.formats.markdown import render_markdown_report
from eclose.report.headline import build_report_headline
from eclose.report.marks import build_response_flow, layout_rate_plot
from eclose.report.sections import (
    describe_evidence_sufficiency,
    describe_judge_agreement,
    describe_judge_flips,
    list_rates_by_evidence,
    list_report_cautions,
)
from eclose.stats.intervals import Estimate, Interval
from eclose.values.judgment import NO_TRACE_REASON, Criterion
from eclose.values.response import ResponseReading, ResponseSource, Trace
from tests.diagnosis.test_diagnose import FAILS, case
from tests.report.making import MODELS, make_diagnosis

CORRECTED = {
    Metric.TRACE_RELIABILITY_RATE: Estimate(0.25, Interval(0.125, 0.5)),
    Metric.GAP_RATE: Estimate(0.5, Interval(0.25, 0.75)),
    Metric.LOCAL_SOUNDNESS_RATE: Estimate(0.75, Interval(0.5, 0.875)),
}


@pytest.fixture
def mixed():
    """Two reliable; four in the gap, of three kinds; one unsound; one whose closure was not judged; one without A."""
    unknown = replace(case(number=7, closed=None).judgment, unjudged={Criterion.CLOSURE: "refusal"})
    return make_diagnosis([
        case(number=0), case(number=1),
        case(number=2, aligned=False), case(number=3, closed=False), case(number=4, closed=False, complete=False),
        case(number=5, closed=False, complete=None),
        case(number=6, steps=(FAILS,), closed=False),
        replace(case(number=7), judgment=unknown),
        case(number=8, aligned=None, closed=False, evidence_sufficient=False),
    ])  # fmt: skip


def test_the_headline_counts_what_was_planted(mixed):
    output = {item.kind: item for item in build_report_headline(mixed, ReportContext())}
    assert {kind: item.count for kind, item in output.items()} == {
        "reliable": 2,
        "gap": 5,
        "unsound": 1,
        "undecided": 1,
    }
    assert {part.kind: part.count for part in output["gap"].parts} == {
        "path_deviation": 1, "incomplete_reasoning": 1, "answer_decoupling": 1, "closure_failure": 1, "undetermined": 1
    }  # fmt: skip
    # 2 of 8 judged; the ninth can be a hit or not: 2/9 to 3/9.
    assert str(output["reliable"].figure) == "between 22.2 % and 33.3 %"
    assert output["reliable"].detail.startswith("Of the 8 of 9 that are judged: 25.0 % [")
    assert output["reliable"].counted == "at least 2 responses"
    assert output["unsound"].detail == ""
    assert output["unsound"].counted == "1 response"
    assert str(output["unsound"].figure).startswith("11.1 % [")


def test_every_response_is_kept_or_lost_at_one_stage(mixed, diagnosis):
    for sample_diagnosis in (mixed, diagnosis):
        stages = build_response_flow(sample_diagnosis)
        assert stages[0].total == sample_diagnosis.overall.responses
        for stage, following in itertools.pairwise(stages):
            assert stage.passed.count == following.total
        for stage in stages:
            assert stage.passed.count + sum(part.count for part in stage.lost) == stage.total
        assert stages[-1].passed.count == sample_diagnosis.overall.rates[Metric.TRACE_RELIABILITY_RATE].hits
    names = [{part.kind: part.count for part in stage.lost} for stage in build_response_flow(mixed)]
    assert names == [
        {"unsound": 1},
        {"path_deviation": 1, "undetermined": 1},
        {"incomplete_reasoning": 1, "answer_decoupling": 1, "closure_failure": 1, "undecided": 1},
    ]


def test_bars_of_the_flow_fill_what_they_come_from(diagnosis):
    rows = build_response_flow(diagnosis)
    assert rows[0].reach == 100
    for row in rows:
        assert row.passed.width + sum(part.width for part in row.lost) == pytest.approx(row.reach, abs=0.01)


def test_dots_lie_within_their_whiskers_and_the_plot(diagnosis):
    plot = layout_rate_plot(diagnosis, ReportContext())
    assert len(plot.rows) == len(diagnosis.groups) + len(diagnosis.by_model) + len(diagnosis.by_dataset)
    for _, _, dots in plot.rows:
        for dot in dots:
            low, high = dot.whisker
            assert 0 <= low <= dot.value <= high <= 100


def test_evidence_is_told_first_and_apart(mixed):
    assert "For 1 of 1 question (1 response) the passages do not settle" in describe_evidence_sufficiency(mixed)[0]
    assert [row[:2] for row in list_rates_by_evidence(mixed)] == [
        ("Where the passages settle the question", "8 responses"),
        ("Where the passages do not settle the question", "1 response"),
        ("All together", "9 responses"),
    ]
    (sentence,) = describe_evidence_sufficiency(make_diagnosis([case(evidence_sufficient=None)]))
    assert "was not judged" in sentence
    assert list_rates_by_evidence(make_diagnosis([case()])) == ()


def test_the_decision_about_evidence_is_said_to_be_unchecked_in_a_validated_report_too(mixed):
    clause = "This decision of the judge has not been compared with people."
    assert describe_evidence_sufficiency(mixed)[-1] == clause
    assert describe_evidence_sufficiency(make_diagnosis([case()]))[-1] == clause
    validated = ReportContext(corrected=CORRECTED, validation="On 40.", validated=True)
    markdown = render_markdown_report(mixed, context=validated)
    section = markdown.split("is the evidence enough?")[1].split("## Then")[0]
    assert clause in section.replace("\N{NO-BREAK SPACE}", " ")
    (table,) = (table for table in build_report_tables(mixed, validated) if table.key == "evidence")
    assert clause in table.note


def test_rates_without_a_correction_are_named_with_the_reason(mixed):
    reasons = {Metric.GAP_SHARE: "of some", Metric.GAP_RISK: "of some", Metric.ACCURACY: "7 of at least 30 labels"}
    notes = ReportContext(corrected=CORRECTED, uncorrected=reasons, validation="On 40.", validated=True)
    note = build_metrics_tables(mixed, notes)[0].note
    assert "Not corrected: Acc (7 of at least 30 labels); LggShare, LggRisk (of some)." in note
    assert "These are the judge's own figures, with its errors." in note
    assert "Not corrected" not in build_metrics_tables(mixed, ReportContext())[0].note
    assert "Not corrected: Acc" in render_latex_report(mixed, notes)


def test_a_judge_nobody_checked_is_called_that():
    assert ReportContext().trust.startswith(NOT_VALIDATED)
    assert ReportContext(validation="91 % agreement on 100 responses").trust == "91 % agreement on 100 responses"


def test_cautions_name_few_questions_what_is_left_out_and_contradictions(mixed):
    output = list_report_cautions(
        make_diagnosis([case(correct=False)]),
        ReportContext(left_out=[("r9", "it was not judged"), ("r8", "it was not judged")]),
    )
    assert "Fewer than 20 questions" in output[0]
    assert output[1] == "2 responses left out: it was not judged."
    assert output[2] == (
        "Among all 3 responses, whatever those left out are, TRR as judged is 33.3 to 100.0 % and LGG as judged is"
        " 0.0 to 66.7 %."
    )
    assert "yet wrong" in output[3]


def test_responses_without_a_trace_are_counted_once_with_what_to_change():
    bare = case(number=0, steps=(), aligned=None, closed=None, complete=None)
    reasons = dict.fromkeys(list(Criterion)[:4], NO_TRACE_REASON)
    bare = replace(
        bare,
        response=replace(bare.response, trace=Trace(())),
        judgment=replace(bare.judgment, unjudged=reasons),
    )
    diagnosis = make_diagnosis([bare, case(number=1), case(number=2)])
    assert diagnosis.without_trace == 1
    first, *others = list_report_cautions(diagnosis, ReportContext())
    assert " ".join(first.split()).startswith("1 of 3 responses (33.3 %) has no trace, so only")
    assert '"Final answer: ..."' in first
    assert 'end with "Final answer: ..."' in first
    # Three of the labels are missing in a third of the responses, for the reason that the first sentence gives.
    assert not any("Too little judged" in sentence for sentence in others)
    assert not any("no trace" in item for item in list_report_cautions(make_diagnosis([case()]), ReportContext()))


def test_steps_taken_from_the_answer_itself_are_pointed_out():
    prose = case(number=0)
    trace = Trace.of("Ada built it.", "It opened.")
    reading = ResponseReading(reader=1, status="trace", rule="prose, closing fragment", origin="prose")
    response = replace(prose.response, trace=trace, answer="Ada built it. It opened.", reading=reading)
    diagnosis = make_diagnosis([replace(prose, response=response)])
    assert (diagnosis.prose_traces, diagnosis.without_trace) == (1, 0)
    sentence = list_report_cautions(diagnosis, ReportContext())[0]
    assert sentence.startswith("The steps of 1 response are sentences of the reply itself")
    beside_stated = make_diagnosis([replace(prose, response=response), case(number=1)])
    assert (beside_stated.overall.responses, beside_stated.apart[TraceStratum.PROSE].responses) == (1, 1)
    assert list_report_cautions(beside_stated, ReportContext())[0].startswith(
        "Not counted in these rates: 1 response with prose traces (TRR 100.0 %"
    )


def test_corrected_rates_come_first_and_the_judges_own_beside_them(mixed):
    notes = ReportContext(corrected=CORRECTED, validation="On 40.", validated=True)
    _reliable, gap, unsound, _ = build_report_headline(mixed, notes)
    # One of nine is not judged: 8/9 of the corrected rate, and 1/9 more.
    assert str(gap.figure) == "between 44.4 % and 55.6 % [22.2, 77.8]"
    assert gap.whose == "corrected by people's labels"
    assert gap.beside == "The judge alone says between 55.6 % and 66.7 %"
    assert str(unsound.figure) == "25.0 % [12.5, 50.0]"
    assert unsound.beside.startswith("The judge alone says 11.1 % [")
    rows = build_metrics_tables(mixed, notes)[0].rows
    assert [row[0].text for row in rows[:2]] == ["all, corrected", "all, the judge alone"]
    assert rows[0][8] == ReportTableCell("44.4 to 55.6", ("[22.2, 77.8]",))
    assert rows[0][3] == ReportTableCell("75.0", ("[50.0, 87.5]",))
    name, _, dots = layout_rate_plot(mixed, notes).rows[0]
    assert (name, [dot.label for dot in dots]) == ("all, corrected", ["–", "22.2 to 33.3", "44.4 to 55.6"])


def test_the_headline_is_corrected_as_a_whole_or_not_at_all(mixed):
    """The judge's own parts beside a corrected whole do not add up."""
    for missing in CORRECTED:
        some = {metric: estimate for metric, estimate in CORRECTED.items() if metric is not missing}
        output = build_report_headline(mixed, ReportContext(corrected=some, validation="On 40.", validated=True))[:3]
        assert {(item.whose, item.beside) for item in output} == {("the judge's own figure, not corrected", "")}


def test_rates_by_evidence_come_with_their_total_by_the_same_judge(mixed):
    """The corrected total in the place of the judge's own exceeded both of its parts."""
    rows = list_rates_by_evidence(mixed)
    own = build_report_headline(mixed, ReportContext())[0]
    assert rows[-1][2] == str(own.figure)
    page = render_markdown_report(
        mixed, context=ReportContext(corrected=CORRECTED, validation="On 40.", validated=True)
    )
    evidence = page[page.index("First: is the evidence enough") : page.index("Then: of")]
    assert "the judge's own figures, not corrected" in evidence
    assert "All together (9 responses): reliable **between 22.2" in evidence.replace("\u00a0", " ")


def test_without_a_validation_every_figure_is_called_the_judges_own(mixed):
    output = build_report_headline(mixed, ReportContext())[:3]
    assert {item.whose for item in output} == {"the judge's own figure, not validated"}
    assert [item.beside for item in output] == ["", "", ""]


def test_models_come_before_datasets_and_pairs(diagnosis, mixed):
    assert [(name, len(groups)) for name, groups in list_group_kinds(diagnosis)] == [
        ("by model", 4), ("by dataset", 3), ("by dataset and model", 12)
    ]  # fmt: skip
    assert [name for name, _ in layout_rate_plot(diagnosis, ReportContext()).sections] == [
        "", "by model", "by dataset", "by dataset and model"
    ]  # fmt: skip
    tables = build_metrics_tables(diagnosis, ReportContext())
    assert [table.key for table in tables] == ["metrics", "metrics-by-dataset", "metrics-by-dataset-and-model"]
    assert [row[0].text for row in tables[0].rows if row[1].text][1:] == sorted(MODELS)
    # One dataset and one model: there is nothing to hold against anything.
    assert [name for name, _ in list_group_kinds(mixed)] == ["by dataset and model"]
    assert [name for name, _ in layout_rate_plot(mixed, ReportContext()).sections] == [""]


def agreeing(wrong, number=40):
    """A judge against people who see a gap in ``wrong`` answers more than it does."""
    good, missed = case().verdict, replace(case().verdict, aligned=False)
    compared = [ValidationCase(f"q{n}", "b", good, missed if n < wrong else good) for n in range(number)]
    return tuple(validate_judge(compared, rng=np.random.default_rng(1), resamples=50).overall.rows.values())


def test_how_far_the_judge_agrees_with_people_is_told_by_label():
    least, each = describe_judge_agreement(ReportContext(agreement=agreeing(4)))
    assert least.startswith("It agrees with them least about A (pursues the question): 90.0 % [")
    assert least.endswith("] of 40 responses.")
    assert each.startswith("Agreement by label: L 100.0 % [9")
    # A judge that was always right may still err: the interval does not end where it begins.
    assert each.count(", 100.0]") == 4
    table = {
        table.key: table
        for table in build_report_tables(make_diagnosis([case()]), ReportContext(agreement=agreeing(4)))
    }
    rows = {row[0].text: [cell.text for cell in row] for row in table["agreement"].rows}
    assert rows["A"][1:6] == ["pursues the question", "40", "90.0", "4", "0"]
    assert rows["TRR"][1] == "reliability"
    missed = next(row for row in table["agreement"].rows if row[0].text == "A")[4]
    assert missed.details == ("of 4", "100.0 % [39.8, 100.0]")
    # A sample drawn by the judge's labels holds fewer misses than the run: its share has no interval for the run.
    (sampled,) = build_judge_agreement_table(ReportContext(agreement=agreeing(4), stratified=True)).rows[1:2]
    assert sampled[4].details == ("of 4", "100.0 % of the sample")
    assert describe_judge_agreement(ReportContext()) == ()
    assert "agreement" not in {table.key for table in build_report_tables(make_diagnosis([case()]), ReportContext())}


def repeated(number, **votes):
    response_case = case(number=number)
    return replace(response_case, judgment=replace(response_case.judgment, votes=votes))


def test_how_steady_the_judge_is_is_told_where_it_was_asked_again():
    repeated_cases = [repeated(0, A=(True, False, True), evidence=(True, True)), repeated(1, A=(True, True, None))]
    sample_diagnosis = make_diagnosis(repeated_cases)
    rows = {row[0].text: row for row in build_judge_flips_table(sample_diagnosis).rows}
    # A: two responses, one flips; of 3 + 1 pairs two differ.
    assert [cell.text for cell in rows["A"]] == ["A", "pursues the question", "2", "1", "50.0", "50.0"]
    assert rows["A"][4].details[0].startswith("[9.")
    assert [cell.text for cell in rows["evidence"]][2:] == ["1", "0", "0.0", "0.0"]
    (output,) = describe_judge_flips(sample_diagnosis)
    assert "least steady about A (pursues the question): 1 of 2 responses got both answers, 50.0 % [" in output
    assert describe_judge_flips(make_diagnosis(repeated_cases[1:])) == (
        "The judge was asked more than once and said the same each time.",
    )
    assert describe_judge_flips(make_diagnosis([case()])) == ()
    assert build_judge_flips_table(make_diagnosis([case()])).rows == ()


def test_a_judge_of_the_models_own_family_is_a_caution():
    own = replace(case(), response=replace(case().response, source=ResponseSource("qwen/qwen3-8b")))
    own = replace(own, judgment=replace(own.judgment, judge="openai/qwen2.5-72b"))
    output = list_report_cautions(make_diagnosis([own]), ReportContext())
    assert any("openai/qwen2.5-72b is of the family of qwen/qwen3-8b, whose" in item for item in output)
    assert not any("family" in item for item in list_report_cautions(make_diagnosis([case()]), ReportContext()))


def test_no_number_is_parted_from_its_unit():
    assert add_no_break_spaces("66.0 % [59.9, 72.1] of n 12") == "66.0\u00a0%\u00a0[59.9,\u00a072.1] of n\u00a012"
    assert add_no_break_spaces("+4.2 points [−1.3, +9.7], 12 of 20") == "+4.2\u00a0points [−1.3,\u00a0+9.7], 12 of 20"


def test_tables_hold_every_metric_and_every_count(mixed):
    tables = {table.key: table for table in build_report_tables(mixed, ReportContext())}
    assert tables["metrics"].heads == (
        "group", "responses", "Acc", "LSR", "A", "C", "GSR", "TRR", "LGG", "LggShare", "LggRisk"
    )  # fmt: skip
    assert all(len(row) == len(table.heads) for table in tables.values() for row in table.rows)
    joint = {tuple(cell.text for cell in row[:3]): int(row[3].text) for row in tables["joint"].rows}
    assert joint == {
        ("1", "1", "1"): 2, ("1", "1", "0"): 3, ("1", "1", "–"): 1, ("1", "0", "1"): 1, ("1", "–", "0"): 1,
        ("0", "1", "0"): 1,
    }  # fmt: skip
    assert [[cell.text for cell in row] for row in tables["unjudged"].rows] == [
        ["C", "the judge refused to answer", "1"]
    ]
    cell = tables["metrics"].rows[0][7]
    assert cell.text == "22.2 to 33.3"
    assert cell.details[0].startswith("25.0 [")
    assert cell.details[1] == "n 8 +1"
