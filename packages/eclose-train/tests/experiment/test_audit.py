"""The audit of results: the draw, the project that people label, and the tables from their labels."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records, write_records
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.experiment.audit import draw_audit_questions, report_audit, sample_audit
from eclose_train.experiment.results import collect_results, report_experiment
from tests.experiment.judged import write_judged_experiment

SMALL = {"resamples": 20, "seed": 42}
BOOTSTRAP = dict.fromkeys(("main", "ablations", "switches", "audit", "judge"), SMALL)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return write_judged_experiment(tmp_path_factory.mktemp("audit"), bootstrap=BOOTSTRAP)


def label(sample, path, **labels):
    """Write people's verdicts on every response of a sample: closure holds everywhere."""
    verdict = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True, **labels)
    write_records(path, [SettledVerdict(row.id, row.instance_id, verdict) for row in sample.responses])
    return path


def test_the_paper_draws_360_responses_to_90_questions_each_with_one_backbone():
    sizes = {"2WikiMultiHopQA": 278, "MuSiQue": 255, "HotpotQA": 333}
    backbones = ("Qwen3-8B", "Qwen3-32B", "Ministral-3-8B")
    pool = {
        (backbone, name): {f"{name}/{number}" for number in range(size)}
        for backbone in backbones
        for name, size in sizes.items()
    }
    drawn = draw_audit_questions(pool, 10, 42)
    assert {len(ids) for ids in drawn.values()} == {10}
    ids = Counter(question for questions in drawn.values() for question in questions)
    assert len(ids) == 90
    assert max(ids.values()) == 1
    assert 4 * len(ids) == 360
    assert draw_audit_questions(pool, 10, 42) == drawn != draw_audit_questions(pool, 10, 43)


def test_settings_with_too_few_questions_are_all_named():
    pool = {("a", "wiki"): {"1", "2", "3"}, ("b", "wiki"): {"1", "2", "3"}, ("a", "hotpot"): {"1"}}
    with pytest.raises(UserError, match=r"wiki on b: 1; hotpot on a: 1"):
        draw_audit_questions(pool, 2, 42)


@pytest.mark.slow
def test_a_sample_has_all_tuned_methods_of_one_training_seed(experiment, tmp_path):
    sample = sample_audit(experiment, tmp_path / "sample", questions=2)
    responses = list(read_records(tmp_path / "sample" / "responses.jsonl", Response))
    assert len(responses) == 2 * 2 * 2 * 2
    assert {(row.source.method, row.source.seed) for row in responses} == {("sft", 1), ("e_closure", 1)}
    methods = Counter((row.source.model, row.instance_id) for row in responses)
    assert set(methods.values()) == {2}
    assert len({question for _, question in methods}) == len(methods) == 8
    instances = list(read_records(tmp_path / "sample" / "instances.jsonl", Instance))
    assert {row.id for row in instances} == {row.instance_id for row in responses}
    assert str(sample.counts) == "40 received = 16 accepted + 24 rejected (not drawn 24) + 0 quarantined"
    other = sample_audit(experiment, tmp_path / "other", questions=2, training_seed=2)
    assert {row.source.seed for row in other.responses} == {2}
    with pytest.raises(UserError, match="belongs to another sample"):
        sample_audit(experiment, tmp_path / "sample", questions=1)
    with pytest.raises(SettingError, match="the plan has 1, 2"):
        sample_audit(experiment, tmp_path / "new", training_seed=9)


@pytest.mark.slow
def test_an_audit_needs_all_methods_judged(tmp_path):
    experiment = write_judged_experiment(tmp_path, skip=["Large sft 1"])
    with pytest.raises(UserError, match="not judged yet: Large sft 1"):
        sample_audit(experiment, tmp_path / "sample", questions=1)


@pytest.mark.slow
def test_a_sample_is_what_annotate_init_takes(experiment, tmp_path):
    pytest.importorskip("sqlalchemy", reason="needs the annotate extra")
    runner = CliRunner()
    words = ["experiment", "audit", "sample", str(experiment.folder), "--out", str(tmp_path / "sample")]
    drawn = runner.invoke(app, [*words, "--questions", "2"])
    assert drawn.exit_code == 0, drawn.output
    assert "--share-questions" in drawn.stdout
    options = ["--share-questions", "--annotators", "a,b", "--adjudicators", "c"]
    result = runner.invoke(app, ["annotate", "init", str(tmp_path / "project"), str(tmp_path / "sample"), *options])
    assert result.exit_code == 0, result.output
    assert "8 questions, 16 responses" in result.stdout


@pytest.mark.slow
def test_labels_of_people_are_compared_with_those_of_the_judge(experiment, tmp_path):
    sample = sample_audit(experiment, tmp_path / "sample", questions=2)
    labels = label(sample, tmp_path / "labels.jsonl")
    audit, _ = report_audit(experiment, labels, tmp_path / "out")
    judged = {row.response_id: row for row in collect_results(experiment).verdicts}
    open_traces = sum(not judged[row.id].verdict.closed for row in sample.responses)
    assert (audit.responses, audit.questions, audit.settings) == (16, 8, 4)
    # People see no failure, so every open trace of the judge is a false alarm.
    assert audit.agreement.overall.rows["C"].false_alarms == open_traces > 0
    assert audit.differences["All methods"]["TRR"].value == pytest.approx(-open_traces / 16)
    assert audit.differences["All methods"]["TRR"].interval is not None
    assert list(audit.gains) == ["SFT"]
    assert audit.gains["SFT"]["TRR"].value == 0
    data = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [table["key"] for table in data["tables"]] == [
        "audit-agreement",
        "audit-results",
        "audit-differences",
        "audit-methods",
    ]


@pytest.mark.slow
def test_labels_on_other_responses_are_counted_or_refused(experiment, tmp_path):
    sample = sample_audit(experiment, tmp_path / "sample", questions=2)
    rows = list(read_records(label(sample, tmp_path / "labels.jsonl"), SettledVerdict))
    foreign = SettledVerdict("other", "q", rows[0].verdict)
    write_records(tmp_path / "more.jsonl", [*rows, foreign])
    output = CliRunner().invoke(
        app, ["experiment", "audit", "report", str(experiment.folder), str(tmp_path / "more.jsonl")]
    )
    assert output.exit_code == 0, output.output
    assert "not used: 1 label of responses outside the experiment" in output.stdout
    write_records(tmp_path / "foreign.jsonl", [foreign])
    with pytest.raises(UserError, match="no verdict is on a judged response"):
        report_audit(experiment, tmp_path / "foreign.jsonl")


@pytest.mark.slow
def test_the_report_has_the_audit_where_the_plan_names_its_labels(experiment, tmp_path):
    sample = sample_audit(experiment, tmp_path / "sample", questions=2)
    labels = label(sample, tmp_path / "labels.jsonl")
    audited = write_judged_experiment(tmp_path / "again", audit_labels=labels, bootstrap=BOOTSTRAP)
    report, _ = report_experiment(audited, tmp_path / "report")
    assert report.audit.responses == 16
    assert "audit-methods" in (tmp_path / "report" / "experiment.tex").read_text().replace("{-}", "-")
