"""The tables of a study in every format: the paper's layout, and cells that say what the study says."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from eclose.detectors.joined import StudyInputs, study_detectors
from eclose.detectors.scores import DetectorKind
from eclose.detectors.study_statistics import FAILURE_GROUPS, DetectorIdentity, StudyGroup, StudySettings
from eclose.report.detectors.tables import build_detector_tables
from eclose.report.detectors.write import (
    LIMITS,
    render_detector_latex,
    render_detector_markdown,
    study_to_dict,
)
from eclose.report.formats.json_file import dump_json
from eclose.report.scores import name_detectors
from tests.detectors.study_making import make_responses, make_scores
from tests.report.hostile import PAYLOADS

FEW = StudySettings(resamples=20)
LABEL_SOURCE = "The groups rest on the labels of judge-x."


def study_scores(scores, responses, verdicts):
    """A study of labels of a judge, with a notice and responses that are left out."""
    return replace(
        study_detectors(StudyInputs(scores, responses, verdicts), FEW),
        label_source=LABEL_SOURCE,
        notices=("STALE: responses.jsonl was changed.",),
        left_out={"it was not judged": 3},
    )


def make_study(seed=1, missing=0.1, **options):
    responses, verdicts, truth = make_responses(seed, **options)
    return study_scores(make_scores(seed, truth, missing=missing), responses, verdicts)


def tables_of(study):
    return {table.key: table for table in build_detector_tables(study)}


def test_the_three_tables_have_the_rows_and_columns_of_the_paper():
    tables = tables_of(make_study(missing=0))
    blindness, scores, robustness = (tables[f"detector-{name}"] for name in ("blindness", "scores", "robustness"))
    classes = ["path deviation", "incomplete reasoning", "answer decoupling"]
    assert [row[0].text for row in blindness.rows] == ["LGG", *classes, "locally unsound"]
    assert [row[0].text for row in scores.rows] == ["reliable", "LGG", *classes, "locally unsound"]
    assert [row[0].text for row in robustness.rows] == ["RAGAS-style", "AlignScore", "T5 closure"]
    assert blindness.heads[:6] == (
        "group", "n", "RAGAS-style AUC", "RAGAS-style R@95", "AlignScore AUC", "AlignScore R@95",
    )  # fmt: skip
    assert robustness.heads == ("detector", "AUROC", "R@95", "FPR", "CF FPR", "CF recall", "threshold")
    assert not any("common" in key for key in tables)


def test_cells_say_what_the_study_says():
    study = make_study()
    tables = tables_of(study)
    for row, group in zip(tables["detector-blindness"].rows, FAILURE_GROUPS, strict=True):
        assert row[1].text == str(study.groups[group])
        for number, result in enumerate(study.results):
            auc, recall = row[2 + 2 * number], row[3 + 2 * number]
            assert auc.text == f"{result.separations[group].auroc.value:.3f}"
            assert recall.text == f"{100 * result.separations[group].recall.value:.1f}"
            fewer = result.scored[group] < study.groups[group]
            assert auc.details == ((f"n {result.scored[group]}",) if fewer else ())
    for row, group in zip(tables["detector-scores"].rows, StudyGroup, strict=True):
        for cell, result in zip(row[2:], study.results, strict=True):
            mean = result.means[group]
            assert cell.text == f"{mean.value:.3f}"
            assert cell.details[0] == f"[{mean.interval.low:.3f}, {mean.interval.high:.3f}]"
    for row, result in zip(tables["detector-robustness"].rows, study.results, strict=True):
        rates = (
            result.separations[StudyGroup.GAP].recall,
            result.false_positive_rate,
            result.held_out_false_positive_rate,
            result.held_out_recall,
        )
        for cell, rate in zip(row[2:6], rates, strict=True):
            assert cell.text == f"{100 * rate.value:.1f}"
            assert cell.details == (f"[{100 * rate.interval.low:.1f}, {100 * rate.interval.high:.1f}]",)


def test_different_responses_bring_the_tables_of_the_common_ones():
    study = make_study()
    tables = tables_of(study)
    shared = tables["detector-blindness-common"]
    assert f"on the {study.common_responses} responses that every detector scored" in shared.title
    gap = shared.rows[0]
    assert gap[1].text == str(study.common[0].scored[StudyGroup.GAP])
    assert gap[2].text == f"{study.common[0].separations[StudyGroup.GAP].auroc.value:.3f}"
    # Every detector scored all of them, so no cell has a number of its own.
    assert not any(cell.details for row in shared.rows for cell in row)
    assert "The detectors scored different responses" in render_detector_markdown(study)


def test_counts_by_reason_detector_and_group():
    study = make_study()
    table = tables_of(study)["detector-counts"]
    rows = [[cell.text for cell in row] for row in table.rows]
    counts = study.counts[study.results[0].detector]
    assert rows[0][:2] == ["RAGAS-style", "scored"]
    assert rows[0][2:] == [
        *(str(counts.groups[group].scored) for group in StudyGroup),
        str(counts.undecided.scored),
    ]
    reasons = {reason for part in counts.groups.values() for reason in part.unscored}
    assert reasons
    for reason in reasons:
        # The first such row: those of the first detector come first.
        row = next(row for row in rows if row[1] == f"no score: {reason}")
        expected = [counts.groups[group].unscored.get(reason, 0) for group in StudyGroup]
        assert row[2:-1] == [str(count) for count in expected]
    undecided = {row[0].text: row[1].text for row in tables_of(study)["detector-undecided"].rows}
    assert undecided["no group: no label L"] == str(study.undecided["no label L"])
    assert undecided["LGG, in none of the three classes: closure failure"] == str(study.unclassified["closure_failure"])


def test_undefined_values_are_dashes_and_never_zero():
    study = make_study(kinds=("reliable", "locally_unsound"), shares=(0.7, 0.3))
    tables = tables_of(study)
    assert {cell.text for cell in tables["detector-blindness"].rows[0][2:]} == {"–"}
    assert {cell.text for cell in tables["detector-scores"].rows[1][2:]} == {"–"}
    for row in tables["detector-robustness"].rows:
        assert [row[1].text, row[2].text, row[5].text] == ["–"] * 3
        assert row[4].text != "–"
    data = json.loads(dump_json(study_to_dict(study)))
    gap = data["detectors"][0]["groups"]["gap"]
    assert gap["auroc"] == {"value": None, "interval": None, "undefined": 20}
    assert data["detectors"][0]["sweep"] is None


def test_a_model_in_place_of_the_papers_has_not_its_name():
    kinds = DetectorKind
    paper = DetectorIdentity(kinds.CLOSURE, "google/t5_xxl_true_nli_mixture@fb749b8")
    stand_in = DetectorIdentity(kinds.CLOSURE, "tasksource/ModernBERT-large-nli")
    steps = DetectorIdentity(kinds.STEP_SUPPORT, "yaxili96/FactCG-DeBERTa-v3-Large")
    assert name_detectors([stand_in, paper, steps]) == {
        stand_in: "closure", paper: "T5 closure", steps: "step support",
    }  # fmt: skip
    other = replace(stand_in, model="another")
    assert list(name_detectors([other, stand_in]).values()) == ["closure 1", "closure 2"]


def test_json_holds_every_statistic_and_count():
    study = make_study()
    data = json.loads(dump_json(study_to_dict(study)))
    assert data["format"] == "eclose-detectors-1"
    assert data["labels"] == LABEL_SOURCE
    assert data["settings"]["retention"] == 0.95
    assert data["left_out"] == {"it was not judged": 3}
    for row, result in zip(data["detectors"], study.results, strict=True):
        assert row["model"] == result.detector.model
        assert row["threshold"] == result.threshold
        assert row["cross_fitted_recall"]["value"] == result.held_out_recall.value
        assert row["groups"]["gap"]["recall"]["interval"] == list(result.separations[StudyGroup.GAP].recall.interval)
        assert row["sweep"]["recalls"] == result.sweep.recalls.tolist()
        assert row["sweep"]["thresholds"][-1] is None
    assert len(data["common"]) == 3
    for row in data["counts"]:
        parts = [*(row["groups"][name] for name in ("reliable", "gap", "locally_unsound")), row["undecided"]]
        assert sum(part["responses"] for part in parts) == data["responses"]
        assert all(part["scored"] + sum(part["unscored"].values()) == part["responses"] for part in parts)
    assert [table["key"] for table in data["tables"]] == list(tables_of(study))


def test_markdown_says_first_whose_labels_these_are_and_last_the_limits():
    text = render_detector_markdown(make_study()).replace("\u00a0", " ")
    lines = text.splitlines()
    assert lines[2] == "> **The groups rest on the labels of judge-x.**"
    assert text.index("STALE") < text.index("## What detectors miss")
    assert "it was not judged: 3 responses" in text
    assert all(sentence in text for sentence in LIMITS)
    # Every row of a table has as many cells as its head.
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


@pytest.mark.parametrize("shares,warned", [((0.9, 0.1), False), ((0.6, 0.4), True)])
def test_many_undecided_responses_are_a_caution(shares, warned):
    text = render_detector_markdown(make_study(kinds=("reliable", "no label L"), shares=shares))
    assert ("have too few labels for a group" in text) is warned


def test_latex_has_the_detectors_above_their_columns_and_intervals_below():
    study = make_study(missing=0)
    text = render_detector_latex(study)
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == len(tables_of(study))
    assert r"\multicolumn{2}{c}{} & \multicolumn{2}{c}{RAGAS{-}style} & \multicolumn{2}{c}{AlignScore}" in text
    assert "group & n & AUC & R@95 & AUC & R@95 & AUC & R@95" in text
    mean = study.results[0].means[StudyGroup.RELIABLE]
    values = next(line for line in text.splitlines() if line.startswith(f"reliable & {study.groups['reliable']} & "))
    assert f"& {mean.value:.3f} &" in values
    assert rf"{{\scriptsize [{mean.interval.low:.3f}, {mean.interval.high:.3f}]}}" in text
    # Braces match, as TeX needs them.
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_names_of_models_are_printed_and_not_obeyed(payload):
    responses, verdicts, truth = make_responses(3, questions=6)
    scores = [replace(row, model=payload) for row in make_scores(3, truth, kinds=[DetectorKind.CLOSURE])]
    study = study_scores(scores, responses, verdicts)
    plain = study_scores([replace(row, model="plain") for row in scores], responses, verdicts)
    markdown, latex = render_detector_markdown(study), render_detector_latex(study)
    # The name adds no line, no cell and no command.
    assert len(markdown.splitlines()) == len(render_detector_markdown(plain).splitlines())
    expected = render_detector_latex(plain).splitlines()
    assert len(latex.splitlines()) == len(expected)
    assert [line for line in latex.splitlines() if not line.startswith("%")] == [
        line for line in expected if not line.startswith("%")
    ]
    assert json.loads(dump_json(study_to_dict(study)))["detectors"][0]["model"] == payload
