"""Figures for print: whole, equal for equal input, and with every word inside."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from eclose.report import figures as module
from eclose.report.context import ReportContext
from eclose.report.figures import FIGURE_SETTINGS, draw_report_figures
from eclose.report.marks import (
    PANEL_METRICS,
    build_response_flow,
    layout_composition_charts,
    layout_dataset_panels,
    layout_difference_plot,
    layout_rate_plot,
)
from eclose.values.response import ResponseSource
from tests.diagnosis.test_diagnose import case
from tests.report.hostile import PAYLOADS, hostile_case, hostile_notes
from tests.report.making import make_diagnosis, run_in_processes
from tests.report.test_comparison import BEFORE, NOW, held

matplotlib = pytest.importorskip("matplotlib")


def drawn(diagnosis, against):
    """The figures before they are written."""
    return {
        "rates": module._rates(layout_rate_plot(diagnosis, ReportContext())),
        "metrics": module._metrics(layout_dataset_panels(diagnosis)),
        "flow": module._flow(build_response_flow(diagnosis)),
        "failures": module._compositions(layout_composition_charts(diagnosis)),
        "differences": module._differences(*layout_difference_plot(against.comparison), against.name),
    }


@pytest.fixture(autouse=True)
def settings():
    with matplotlib.rc_context(FIGURE_SETTINGS):
        yield


def words(figure):
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [element for element in figure.findobj(Text) if element.get_visible() and element.get_text().strip()]


def assert_inside(figure):
    frame = figure.bbox.padded(1)
    for element in words(figure):
        box = element.get_window_extent()
        assert frame.contains(*box.min), element
        assert frame.contains(*box.max), element


@pytest.mark.slow
def test_no_word_is_cut(diagnosis):
    for figure in drawn(diagnosis, held()).values():
        assert_inside(figure)


@pytest.mark.slow
def test_long_names_and_large_numbers_leave_room():
    many = [case(number=number, closed=number % 3 != 0, aligned=number % 5 != 0) for number in range(40)]
    long = [hostile_case(number, "W" * 3_000) for number in range(4)]
    diagnosis = make_diagnosis(long + many, resamples=5)
    for figure in drawn(diagnosis, replace(held(), name="W" * 3_000)).values():
        assert_inside(figure)


@pytest.mark.slow
def test_figures_say_what_the_page_says(diagnosis):
    drawing = drawn(diagnosis, held())
    texts = {name: " ".join(element.get_text() for element in words(figure)) for name, figure in drawing.items()}
    for name, responses, dots in layout_rate_plot(diagnosis, ReportContext()).rows:
        assert f"{name}  ({responses:,})" in texts["rates"]
        assert all(dot.label in texts["rates"] for dot in dots)
    for row in build_response_flow(diagnosis):
        assert f"{row.passed.count:,} {row.passed.name} ({row.passed.share} %)" in texts["flow"]
        for part in row.lost:
            assert f"{part.name}: {part.count:,} ({part.share} %)" in texts["flow"]
    for _, total, bars in layout_composition_charts(diagnosis):
        assert f"n = {total:,}" in texts["failures"]
        assert all(f"{bar.count:,} ({bar.share} %)" in texts["failures"] for bar in bars)
    for letter, _, dot in layout_difference_plot(held().comparison)[1]:
        assert letter in texts["differences"]
        assert dot.label in texts["differences"]


@pytest.mark.slow
def test_every_metric_is_drawn_for_each_dataset_and_model_and_pooled(diagnosis):
    panels = layout_dataset_panels(diagnosis)
    datasets = sorted({pair.group[0] for pair in diagnosis.pairs})
    assert [name for name, _ in panels] == [*datasets, "all datasets"]
    pooled = {group.group[0]: group for group in diagnosis.by_model}
    for model, dots in panels[-1][1]:
        values = [pooled[model].rates[metric].value for metric in PANEL_METRICS]
        assert [metric.value for metric in PANEL_METRICS] == ["Acc", "LSR", "GSR", "TRR", "LGG", "LggShare", "LggRisk"]
        assert [dot.value for dot in dots] == [
            None if element is None else round(100 * element, 3) for element in values
        ]
        assert dots[5].n == pooled[model].rates[PANEL_METRICS[5]].n
    figure = module._metrics(panels)
    bars = [len([patch for patch in axes.patches if patch.get_height() > 0]) for axes in figure.axes]
    drawn = [sum(bool(dot.value) + bool(dot.band and dot.band[1] > dot.band[0]) for _, dots in models
                 for dot in dots) for _, models in panels]  # fmt: skip
    assert bars == drawn
    texts = " ".join(element.get_text() for element in words(figure))
    assert all(model in texts for model in pooled)


def test_one_model_or_one_dataset_is_pooled_once():
    def of(model, dataset, number):
        drawing = case(number=number)
        source = replace(drawing.response, source=ResponseSource(model))
        return replace(drawing, response=source, instance=replace(drawing.instance, benchmark=dataset))

    single = layout_dataset_panels(make_diagnosis([of("m", "a", 0), of("n", "a", 1)], resamples=5))
    assert [(name, len(models)) for name, models in single] == [("a", 2)]
    element = layout_dataset_panels(make_diagnosis([of("m", "a", 0), of("m", "b", 1)], resamples=5))
    assert [(name, len(models)) for name, models in element] == [("a", 1), ("b", 1), ("all datasets", 1)]
    assert element[-1][1][0][1][0].n == 2
    apart = layout_dataset_panels(make_diagnosis([of("m", "a", 0), of("n", "b", 1)], resamples=5))
    assert [model for model, _ in apart[-1][1]] == ["m", "n"]


@pytest.mark.slow
def test_what_is_not_there_is_not_drawn():
    files = draw_report_figures(make_diagnosis([case()], resamples=5), ReportContext())
    assert list(files) == ["rates.pdf", "rates.svg", "metrics.pdf", "metrics.svg", "flow.pdf", "flow.svg"]
    assert "differences.pdf" in draw_report_figures(
        make_diagnosis(NOW, resamples=5), ReportContext(base=held(NOW, BEFORE))
    )


@pytest.mark.slow
@pytest.mark.parametrize("text", PAYLOADS[::16], ids=range(len(PAYLOADS[::16])))
def test_no_name_says_more_than_a_name(text):
    hostile = [hostile_case(number, text) for number in range(4)]
    files = draw_report_figures(make_diagnosis(hostile, resamples=5), hostile_notes(text))
    for name, data in files.items():
        if name.endswith(".svg"):
            kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(data).iter()}
            assert kinds <= {"svg", "metadata", "RDF", "Work", "type", "format", "defs", "style", "g", "path", "use",
                             "clipPath", "rect", "pattern"}  # fmt: skip
        else:
            assert data.startswith(b"%PDF")
            assert not re.search(rb"/(JavaScript|JS|URI|Launch|OpenAction)\b", data)


@pytest.mark.slow
def test_a_dollar_sign_is_a_dollar_sign():
    odd = [hostile_case(number, r"$\frac{$") for number in range(3)]
    assert draw_report_figures(make_diagnosis(odd, resamples=5), hostile_notes(r"$\frac{$"))


@pytest.mark.study  # in short: files that are equal for equal input
@pytest.mark.slow
def test_bytes_do_not_depend_on_the_process():
    program = (
        "import hashlib; from tests.report.making import *; "
        "from eclose.report.figures import draw_report_figures; "
        "from eclose.report.context import ReportContext; "
        "files = draw_report_figures(make_diagnosis(make_cases(make_questions(3), 12), 5), ReportContext()); "
        "print(sorted((name, hashlib.sha256(data).hexdigest()) for name, data in files.items()))"
    )
    assert len(run_in_processes(program)) == 1


@pytest.mark.slow
def test_there_is_no_date_in_a_figure(diagnosis):
    for data in draw_report_figures(diagnosis, ReportContext()).values():
        assert not re.search(rb"CreationDate|dc:date|20\d\d-\d\d-\d\dT", data)
