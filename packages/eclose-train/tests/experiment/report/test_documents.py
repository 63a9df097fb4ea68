"""All tables of a report in one LaTeX document: it compiles, and nothing is wider than the page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from eclose.values.response import ResponseSource
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.report.documents import render_experiment_latex
from eclose_train.experiment.report.inputs import TrainingTime
from eclose_train.experiment.report.people import AuditLabels
from eclose_train.experiment.report.study_tables import build_experiment_tables
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.training.switch_test import FamilySwitchScores, margin_name
from tests.experiment.report.test_audit_tables import paper_responses
from tests.experiment.report.test_evaluator import make_labels
from tests.experiment.report.test_small_grid import make_results, make_rows

PDFLATEX = shutil.which("pdflatex")
DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage[T1]{fontenc}
\usepackage{textcomp,booktabs,graphicx}
\begin{document}
\input{tables}
\end{document}
"""
DRAWS = BootstrapDraws(resamples=20, seed=1)
RUNS = ((None, None), ("sft", 1), ("sft", 2), ("e_closure", 1), ("e_closure", 2))


def every_table():
    """A report that has a table of every kind."""
    margins = {margin_name(edge, direction): 1.0 for edge in Edge for direction in Direction}
    runs = [(backbone, *run) for backbone in ("small", "large") for run in RUNS]
    recipe = {"lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"] * 4, "learning_rate": 1e-4}
    results = make_results(
        ablations=make_rows([("e_closure-S", 1), ("e_closure-S", 2)], ["small"]),
        switches=[
            FamilySwitchScores("f", "wiki_1", "p", {}, margins, model=backbone, method=method, seed=seed)
            for backbone, method, seed in runs
        ],
        evaluator=make_labels(others={"low & cheap": [case.human for case in make_labels().cases]}),
        audit=AuditLabels(responses=paper_responses()),
        times=[
            TrainingTime(backbone=backbone, method=method, seed=seed, seconds=60.0, device="CPU_1 #2")
            for backbone, method, seed in runs
            if method
        ],
        recipes={ResponseSource(*run): recipe for run in runs if run[1]},
    )
    plan = BootstrapPlan(main=DRAWS, ablations=DRAWS, switches=DRAWS, judge=DRAWS, audit=DRAWS)
    return build_experiment_report(results, plan)


@pytest.mark.slow
@pytest.mark.skipif(PDFLATEX is None, reason="needs pdflatex (texlive-latex-recommended)")
def test_all_tables_compile_within_the_page(tmp_path):
    report = every_table()
    keys = {table.key for table in build_experiment_tables(report)}
    assert keys >= {"overall", "switch-gains", "evaluator-judges", "audit-methods", "hyperparameters", "cost"}
    (tmp_path / "tables.tex").write_text(render_experiment_latex(report), "utf-8")
    (tmp_path / "all.tex").write_text(DOCUMENT, "utf-8")
    words = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    process = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=300)
    log = (tmp_path / "all.log").read_text("utf-8", "replace")
    assert process.returncode == 0, log[-3000:]
    assert not re.findall(r"Overfull \\[hv]box[^\n]*|Missing character[^\n]*|multiply defined", log)
