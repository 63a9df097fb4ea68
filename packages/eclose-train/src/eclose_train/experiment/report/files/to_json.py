"""The report of an experiment as one JSON object: every rate with its n and interval, under stable keys (0043)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from eclose.report.detectors.documents import table_to_dict
from eclose.report.formats.json_file import estimate_to_dict
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate
from eclose_train.experiment.report.files.documents import list_report_statements, list_run_rates, rate_to_dict
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.main_results import SettingTally
from eclose_train.experiment.report.outcomes import MeanRate
from eclose_train.experiment.report.people_tables import build_audit_tables
from eclose_train.experiment.report.study_tables import build_experiment_tables

if TYPE_CHECKING:
    from eclose.metrics.judge_against_people import GroupValidation, LabelAgreementRow
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.audit import AuditResults
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.evaluator import EvaluatorResults
    from eclose_train.experiment.report.main_results import AblationResults, SwitchResults
    from eclose_train.experiment.report.outcomes import OutcomeTable

EXPERIMENT_FORMAT = "eclose-experiment-1"


def render_experiment_json(report: ExperimentReport) -> str:
    """Return one JSON object in ASCII: every rate with its n and interval."""
    return json.dumps(_report_to_dict(report), indent=1, allow_nan=False) + "\n"


def _report_to_dict(report: ExperimentReport) -> dict[str, Any]:
    main = report.main
    return {
        # The keys are a public format: add keys, never rename them.
        "format": EXPERIMENT_FORMAT,
        "labels": report.labels,
        "provenance": asdict(report.provenance),
        "complete": not report.missing,
        "missing": list(report.missing),
        "left_out": report.left_out,
        "reference": REFERENCE_METHOD,
        "intervals": asdict(report.bootstrap),
        "grid": _grid_to_dict(main.outcomes),
        "overall": _to_plain(main.overall),
        "gains": _to_plain(main.gains),
        "seeds": list_run_rates(main.outcomes),
        "ablations": [_ablation_to_dict(ablation) for ablation in report.ablations],
        "evaluator": None if report.evaluator is None else _evaluator_to_dict(report.evaluator),
        "audit": None if report.audit is None else audit_to_dict(report.audit),
        "switches": None if report.switches is None else _switches_to_dict(report.switches),
        "variant_switches": [_switches_to_dict(switches) for switches in report.variant_switches],
        "cost": None
        if report.cost is None
        else {
            "runs": report.cost.runs,
            "device_hours": report.cost.device_hours,
            "hours": [
                {"method": method, "backbone": backbone, **asdict(hours)}
                for (method, backbone), hours in report.cost.hours.items()
            ],
        },
        "hyperparameters": report.used_settings,
        "claims": [
            {
                "title": claim.title,
                "outcome": claim.outcome.value,
                "comparisons": [
                    {"name": row.name, "n": row.n, "outcome": row.outcome.value, **estimate_to_dict(row.difference)}
                    for row in claim.comparisons
                ],
            }
            for claim in report.claims
        ],
        "statements": list(list_report_statements(report)),
        "tables": [table_to_dict(table) for table in build_experiment_tables(report)],
    }


def _to_plain(value: Any) -> Any:
    """Return a value of the report as JSON holds it: records as objects by field, rates and estimates by their keys."""
    if isinstance(value, Estimate):
        return estimate_to_dict(value)
    if isinstance(value, Rate):
        return rate_to_dict(value)
    if isinstance(value, MeanRate):
        # ``value`` is null where too few responses are judged; ``of_judged`` is the rate of the judged.
        return {**asdict(value), "value": value.shown, "interval": value.shown_interval, "of_judged": value.value}
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, SettingTally):
        return value._asdict()
    if isinstance(value, tuple):
        return [_to_plain(entry) for entry in value]
    if is_dataclass(value):
        return {field.name: _to_plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _grid_to_dict(outcomes: OutcomeTable) -> dict[str, Any]:
    return {**asdict(outcomes.grid), "cases": len(outcomes.units)}


def _ablation_to_dict(ablation: AblationResults) -> dict[str, Any]:
    return {
        "backbone": ablation.backbone,
        "grid": _grid_to_dict(ablation.outcomes),
        "rates": _to_plain(ablation.rates),
        "seeds": list_run_rates(ablation.outcomes),
        "gains": _to_plain(ablation.gains),
    }


def _switches_to_dict(switches: SwitchResults) -> dict[str, Any]:
    return {
        "grid": _grid_to_dict(switches.outcomes),
        "rates": _to_plain(switches.rates),
        "gains": _to_plain(switches.gains),
        "seeds": list_run_rates(switches.outcomes),
    }


def _evaluator_to_dict(evaluator: EvaluatorResults) -> dict[str, Any]:
    return {
        "name": evaluator.name,
        "not_in_runs": evaluator.not_in_runs,
        "datasets": {name: _group_to_dict(group) for name, group in evaluator.agreement.datasets.items()},
        "judges": {
            name: {**_group_to_dict(group), "inconsistent": evaluator.inconsistent[name]}
            for name, group in evaluator.judges.items()
        },
        "gains": {
            name: _to_plain({"mean_agreement": gain.mean_agreement, "mean_failure_f1": gain.mean_failure_f1})
            for name, gain in evaluator.gains.items()
        },
    }


def audit_to_dict(audit: AuditResults) -> dict[str, Any]:
    """Return an audit as plain values for JSON."""
    return {
        "responses": audit.responses,
        "questions": audit.questions,
        "settings": audit.settings,
        "not_in_runs": audit.not_in_runs,
        "agreement": _group_to_dict(audit.agreement.overall),
        "rates": _to_plain(audit.rates),
        "compared": _to_plain(audit.compared),
        "differences": _to_plain(audit.differences),
        "gains": _to_plain(audit.gains),
    }


def render_audit_json(audit: AuditResults, draws: BootstrapDraws) -> str:
    """Return an audit alone as one JSON object in ASCII, under the keys of the report of an experiment."""
    tables = [table_to_dict(table) for table in build_audit_tables(audit, draws)]
    content = {
        "format": EXPERIMENT_FORMAT,
        "intervals": {"audit": asdict(draws)},
        "audit": audit_to_dict(audit),
        "tables": tables,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _group_to_dict(group: GroupValidation) -> dict[str, Any]:
    return {
        "responses": group.responses,
        "questions": group.questions,
        "mean_agreement": estimate_to_dict(group.mean_agreement),
        "mean_failure_f1": estimate_to_dict(group.mean_failure_f1),
        "largest_failure_difference": group.largest_failure_difference,
        "labels": {label.value: _label_to_dict(row) for label, row in group.rows.items()},
    }


def _label_to_dict(row: LabelAgreementRow) -> dict[str, Any]:
    counts = {name: getattr(row, name) for name in ("n", "unjudged", "failures", "misses", "false_alarms")}
    return {**counts, **_to_plain(row.scores)}
