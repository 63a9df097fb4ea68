"""The files of an experiment's report, in one folder. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.diagnosis.report.plots.figures import explain_missing_figures
from eclose.diagnosis.report.write import FIGURES_FOLDER
from eclose.experiments.report.files.documents import (
    render_ablation_csv,
    render_audit_latex,
    render_audit_markdown,
    render_experiment_latex,
    render_experiment_markdown,
    render_seed_csv,
    render_switch_csv,
)
from eclose.experiments.report.files.figures import draw_experiment_figures
from eclose.experiments.report.files.page import REPORT_PAGE_FILE, render_experiment_page
from eclose.experiments.report.files.to_json import render_audit_json, render_experiment_json
from eclose.experiments.report.people_tables import build_audit_tables
from eclose.store.records.atomic import write_files

if TYPE_CHECKING:
    from eclose.experiments.bootstrap_plan import BootstrapDraws
    from eclose.experiments.report.audit import AuditResults
    from eclose.experiments.report.build import ExperimentReport


def write_audit_report(audit: AuditResults, draws: BootstrapDraws, folder: Path | str) -> list[Path]:
    """Write the tables of an audit alone as JSON, Markdown and LaTeX; return the paths."""
    tables = tuple(build_audit_tables(audit, draws))
    files = {
        "audit.json": render_audit_json(audit, draws),
        "audit.md": render_audit_markdown(tables),
        "audit.tex": render_audit_latex(tables),
    }
    return list(write_files(Path(folder), {name: text.encode() for name, text in files.items()}).values())


def write_experiment_report(report: ExperimentReport, folder: Path | str) -> list[Path]:
    """Write the report as one HTML page, JSON, Markdown, LaTeX, CSV and figures; return the paths.

    Figures are left out without matplotlib.
    """
    # Render everything before the first write: an error leaves an old report untouched.
    files = {
        "experiment.json": render_experiment_json(report),
        "experiment.md": render_experiment_markdown(report),
        "experiment.tex": render_experiment_latex(report),
        "per_seed.csv": render_seed_csv(report),
    }
    if report.ablations:
        files["ablation_per_seed.csv"] = render_ablation_csv(report)
    if report.switches or report.variant_switches:
        files["switch_rates.csv"] = render_switch_csv(report)
    figures = draw_experiment_figures(report) if explain_missing_figures() is None else {}
    files[REPORT_PAGE_FILE] = render_experiment_page(report, figures)
    contents = {name: text.encode() for name, text in files.items()}
    contents |= {f"{FIGURES_FOLDER}/{name}": data for name, data in figures.items()}
    return list(write_files(Path(folder), contents).values())
