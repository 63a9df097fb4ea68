"""Every table in LaTeX can be set: braces and environments match, and every row has the columns of its table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.detectors.joined import StudyInputs, study_detectors
from eclose.report.detectors.write import render_detector_latex
from eclose.report.formats.latex import render_latex_report
from tests.detectors.study_making import make_responses, make_scores
from tests.report.detectors.test_detector_tables import FEW, make_study
from tests.report.hostile import PAYLOADS
from tests.report.latex_check import find_latex_problems

TABLE = r"""\begin{tabular}{lrr}
\multicolumn{1}{c}{} & \multicolumn{2}{c}{both} \\
a \& b & 50\,\% & {\scriptsize [1, 2]} \\ % a comment with { and &
\end{tabular}"""


@pytest.mark.parametrize(
    "broken, problem",
    [
        (TABLE.replace("{both}", "{both"), "braces"),
        (TABLE.replace("[1, 2]}", "[1, 2]}}"), "closes nothing"),
        (TABLE.replace(r"\end{tabular}", ""), "stays open"),
        (TABLE.replace(r"\end{tabular}", r"\end{table}"), "does not fit"),
        (TABLE.replace(r"\& b", "& b"), "4 cells in 3 columns"),
        (TABLE.replace("{lrr}", "{lr}"), "3 cells in 2 columns"),
    ],
)
def test_the_reader_finds_what_tex_would_stop_at(broken, problem):
    assert find_latex_problems(TABLE) == []
    assert any(problem in sentence for sentence in find_latex_problems(broken))


@pytest.mark.parametrize("missing", [0, 0.1])
def test_tables_of_detectors_can_be_set(missing):
    assert find_latex_problems(render_detector_latex(make_study(missing=missing))) == []


@pytest.mark.slow
def test_tables_with_hostile_names_can_be_set():
    responses, verdicts, truth = make_responses(3, questions=6)
    scores = make_scores(3, truth)
    for payload in PAYLOADS[::6]:
        study = study_detectors(StudyInputs([replace(row, model=payload) for row in scores], responses, verdicts), FEW)
        study = replace(study, label_source=payload)
        assert find_latex_problems(render_detector_latex(study)) == [], payload


@pytest.mark.slow
def test_tables_of_a_diagnosis_can_be_set(diagnosis):
    assert find_latex_problems(render_latex_report(diagnosis)) == []
