"""The lookup of a run's validation, and the corrected rates that follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.files.jsonl import ReadRecord
from eclose.files.step import PipelineStep
from eclose.judging.correct_rates import (
    MIN_PEOPLE_LABELS,
    NO_LABEL_REASON,
    NO_VALIDATION,
    UNINFORMATIVE_LABELS_REASON,
    correct_run_rates,
)
from eclose.judging.settings import JudgeSettings
from eclose.judging.validation_file import validate_run, write_validation
from eclose.metrics.rates import Metric
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, Trace
from eclose.values.verdict import SettledVerdict, Verdict

TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE


def judgment(number, closed=None):
    sound = StepJudgment(substantive=True, sound=True)
    closed = number % 4 > 0 if closed is None else closed
    return Judgment(f"r{number}", "house/judge", (sound,), aligned=True, closed=closed, complete=True, correct=True)


def verdict(number):
    closed = number % 4 > 0 or number % 20 == 0
    return SettledVerdict(f"r{number}", f"q{number}", Verdict(True, True, closed, True, True), "b")


class Run:
    """A judged run of 60 responses, one a question."""

    def __init__(self, folder, count=60):
        self.folder = folder
        folder.mkdir()
        self.judgments = [judgment(number) for number in range(count)]
        self.responses = [Response(f"r{number}", f"q{number}", Trace.of("So."), "So") for number in range(count)]
        passages = (Passage("1", "It", "So."),)
        inputs = (folder / "instances.jsonl", folder / "responses.jsonl")
        jsonl.write_records(inputs[0], [Instance(f"q{number}", "So?", passages, "So") for number in range(count)])
        jsonl.write_records(inputs[1], self.responses)
        stage = PipelineStep("judge", JudgeSettings().identity, inputs, folder / "judgments.jsonl")
        stage.write(ReadRecord(judgment.response_id, value=judgment) for judgment in self.judgments)

    def validate(self, labels, path=None):
        rng = np.random.default_rng(1)
        validation = validate_run(self.folder, [verdict(number) for number in range(labels)], rng=rng, resamples=20)
        write_validation(path or self.folder / "validation.json", validation)

    def correction(self, validation=None, runs=None, judgments=None):
        rng = np.random.default_rng(1)
        judgments = self.judgments if judgments is None else judgments
        questions = {response.id: response.instance_id for response in self.responses}
        verdicts = [
            SettledVerdict(
                judgment.response_id, questions.get(judgment.response_id, judgment.response_id), judgment.verdict
            )
            for judgment in judgments
        ]
        judges = list(dict.fromkeys(judgment.judge for judgment in judgments))
        return correct_run_rates(runs or [self.folder], verdicts, judges, validation, rng=rng)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def test_every_metric_has_a_corrected_rate_or_a_reason(run):
    run.validate(40)
    correction = run.correction()
    assert set(correction.rates) | set(correction.reasons) == set(Metric)
    assert not set(correction.rates) & set(correction.reasons)
    assert correction.rates[TRR].labelled == 40
    assert correction.rates[TRR].judge == pytest.approx(0.75)
    assert correction.reasons[Metric.GAP_SHARE] == NO_LABEL_REASON
    assert (correction.enough, correction.carried_over) == (True, False)


def test_validation_beside_judgments_without_a_manifest_says_what_is_missing(run):
    run.validate(40)
    (run.folder / "judgments.jsonl.manifest.json").unlink()
    with pytest.raises(UserError, match=r"judgments\.jsonl has no manifest.*Judge the run again, or move validation"):
        run.correction()


def test_without_a_validation_every_metric_says_so(run):
    correction = run.correction()
    assert correction.rates == {}
    assert correction.reasons == dict.fromkeys(Metric, NO_VALIDATION)
    assert not correction.enough


def test_fewer_labels_than_the_least_correct_nothing(run):
    run.validate(MIN_PEOPLE_LABELS - 1)
    correction = run.correction()
    assert correction.rates == {}
    assert correction.reasons[TRR] == "29 of at least 30 labels"
    assert correction.validation.labelled == 29
    assert not correction.enough
    run.validate(MIN_PEOPLE_LABELS)
    assert {TRR, LGG} <= set(run.correction().rates)


def test_the_validation_of_one_run_is_not_taken_for_several_unless_it_is_named(run, tmp_path):
    other = Run(tmp_path / "other")
    run.validate(40)
    both = [run.folder, other.folder]
    assert run.correction(runs=both).reasons[TRR] == NO_VALIDATION
    judgments = [judgment(number) for number in range(100, 180)]
    correction = run.correction(run.folder / "validation.json", both, judgments)
    assert correction.carried_over
    assert correction.rates[TRR].judged == 80


def test_a_judge_whose_labels_tell_nothing_corrects_no_other_run(run):
    """All labelled responses fail to people: how often the judge passes a good one is not known."""
    rows = [SettledVerdict(f"r{number}", f"q{number}", Verdict(True, True, False), "b") for number in range(40)]
    write_validation(run.folder / "v.json", validate_run(run.folder, rows, rng=np.random.default_rng(1), resamples=20))
    correction = run.correction(run.folder / "v.json", judgments=[judgment(number) for number in range(100, 180)])
    assert correction.reasons[TRR] == UNINFORMATIVE_LABELS_REASON


def test_judgments_other_than_the_validated_ones_are_refused(run):
    """The same responses, judged anew in the same way: the labels were compared with other judgments."""
    run.validate(40)
    anew = [judgment(number, closed=True) for number in range(60)]
    with pytest.raises(SettingError, match=r"other judgments of these responses.*judge validate"):
        run.correction(judgments=anew)
