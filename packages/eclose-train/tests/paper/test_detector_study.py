"""The detector study on responses with the paper's groups: printed AUCs and recalls come out of the whole path."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from eclose.detectors.joined import DetectorStudy, StudyInputs, study_detectors
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.study_statistics import FAILURE_GROUPS, StudyGroup, StudySettings, list_study_groups
from eclose.report.detectors.tables import build_detector_tables
from eclose.values.response import Response, Trace
from eclose.values.verdict import SettledVerdict

from .derivations import detectors, diagnosis
from .printed import cell, cells, whole

# The detectors of the paper come first; controls and verifiers are not in it.
PAPER_KINDS = list(DetectorKind)[: len(detectors.DETECTORS)]
KINDS = dict(zip(detectors.DETECTORS, PAPER_KINDS, strict=True))
MODELS = ("gpt-5.6-luna", "gpt-5.6-luna", "AlignScore-large", "gpt-5.6-luna", "t5_xxl_true_nli_mixture")
ROWS = {
    StudyGroup.RELIABLE: "Reliable",
    StudyGroup.GAP: "LGG",
    StudyGroup.PATH_DEVIATION: "Path deviation",
    StudyGroup.INCOMPLETE_REASONING: "Incomplete reasoning",
    StudyGroup.ANSWER_DECOUPLING: "Answer decoupling",
    StudyGroup.LOCALLY_UNSOUND: "Locally unsound",
}
QUESTIONS = 866


def _place_scores(detector: str, group: StudyGroup, size: int) -> list[float]:
    """Return scores of a failure group with the printed number below the threshold and the printed AUC.

    Reliable scores are spread evenly, so a response at x has the share 1 - x of them above it: its part of the AUC.
    """
    row = ROWS[group]
    flagged = cell("detector_blindness", row, f"{detector} R@95").count(size)
    auc = float(cell("detector_blindness", row, f"{detector} AUC").value)
    # Flagged ones have a share of 0.975 above them; the others make up for the rest.
    others = (auc * size - 0.975 * flagged) / (size - flagged)
    assert 0 < others < 0.95
    return [0.025] * flagged + [1 - others] * (size - flagged)


@cache
def _study() -> DetectorStudy:
    verdicts = diagnosis.responses()
    rows = [SettledVerdict(f"r{i}", f"q{i % QUESTIONS}", verdict, "all") for i, verdict in enumerate(verdicts)]
    responses = [Response(row.response_id, row.instance_id, Trace.of("A step."), "x") for row in rows]
    # Reliable, one of the three classes, or unsound: the last group of a response is the finest.
    members = [list_study_groups(verdict)[-1] for verdict in verdicts]
    scores = []
    for (name, kind), model in zip(KINDS.items(), MODELS, strict=True):
        for group in set(members):
            ids = [row.response_id for row, member in zip(rows, members, strict=True) if member is group]
            if group is StudyGroup.RELIABLE:
                values = [(index + 0.5) / len(ids) for index in range(len(ids))]
            else:
                values = _place_scores(name, group, len(ids))
            scores += [
                DetectorScore(response_id=id_, detector=kind, model=model, score=value)
                for id_, value in zip(ids, values, strict=True)
            ]
    return study_detectors(StudyInputs(scores, responses, rows), StudySettings(resamples=2))


@pytest.mark.slow
def test_groups_are_those_of_the_paper() -> None:
    study = _study()
    assert (study.responses, study.questions, study.undecided, study.unclassified) == (2598, QUESTIONS, {}, {})
    for group, row in ROWS.items():
        assert study.groups[group] == whole("detector_scores", row, "n")


@pytest.mark.parametrize("name", detectors.DETECTORS)
@pytest.mark.parametrize("group", FAILURE_GROUPS)
def test_printed_separation_comes_out_of_the_table(group: StudyGroup, name: str) -> None:
    (table, *_) = build_detector_tables(_study())
    row = table.rows[FAILURE_GROUPS.index(group)]
    column = 2 + 2 * detectors.DETECTORS.index(name)
    assert row[1].text == cell("detector_blindness", ROWS[group], "n").printed
    # The gap has no scores of its own: its recall follows from its classes exactly.
    assert row[column + 1].text == cell("detector_blindness", ROWS[group], f"{name} R@95").printed
    auc = cell("detector_blindness", ROWS[group], f"{name} AUC")
    # Its AUC follows up to the rounding of theirs.
    assert auc.agrees(Fraction(row[column].text), Fraction(1 if group is StudyGroup.GAP else 0))


@pytest.mark.parametrize("name", detectors.DETECTORS)
def test_robustness_repeats_the_point_estimates_of_the_gap(name: str) -> None:
    tables = {table.key: table for table in build_detector_tables(_study())}
    row = tables["detector-robustness"].rows[detectors.DETECTORS.index(name)]
    assert row[2].text == cell("detector_robustness", name, "R@95").printed
    assert cell("detector_robustness", name, "AUROC").agrees(Fraction(row[1].text), Fraction(1))
    # 95 of 1,914 reliable responses are the most that 5 % allows.
    assert row[3].text == f"{100 * 95 / 1914:.1f}"


@pytest.mark.parametrize("name", detectors.DETECTORS)
def test_means_of_the_gap_are_those_of_its_classes(name: str) -> None:
    (result,) = (row for row in _study().results if row.detector.kind is KINDS[name])
    sizes = {group: result.scored[group] for group in ROWS}
    classes = [StudyGroup.PATH_DEVIATION, StudyGroup.INCOMPLETE_REASONING, StudyGroup.ANSWER_DECOUPLING]
    means = [result.means[group].value for group in classes]
    assert None not in means
    expected = np.average(np.array(means, float), weights=[sizes[group] for group in classes])
    assert result.means[StudyGroup.GAP].value == pytest.approx(expected, abs=1e-12)


def test_claims_on_recall_hold_in_the_study() -> None:
    study = _study()
    support = study.results[:3]
    statements = {row: float(figure.value) for (table, row, _), figure in cells().items() if table == "text: detectors"}

    def recalls(group: StudyGroup) -> list[float]:
        return [round(100 * (result.separations[group].recall.value or 0), 1) for result in support]

    assert max(recalls(StudyGroup.GAP)) == statements["highest gap recall of support verifiers"]
    assert min(recalls(StudyGroup.GAP)) == statements["lowest gap recall of support verifiers"]
    assert max(recalls(StudyGroup.LOCALLY_UNSOUND)) == statements["highest unsound recall of support verifiers"]
    assert min(recalls(StudyGroup.ANSWER_DECOUPLING)) == statements["lowest decoupling recall of support verifiers"]
    assert max(recalls(StudyGroup.ANSWER_DECOUPLING)) == statements["highest decoupling recall of support verifiers"]
