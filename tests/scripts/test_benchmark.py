"""Rows of the benchmark come from the records; wrong rows are refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "docs"))

import benchmark_page
from benchmark_parsers import parse_detector_report, parse_detector_tables, parse_judged_sets
from benchmark_rows import find_numbers, read_record
from benchmark_tables import format_page

DETECTOR_RECORD = """\
# A remark.
$ python studies/campaigns/detect_verifier.py --test

## confusable-short, all features
n = 3000; flagged at the calibrated threshold: reliable 6.2 [4.3, 8.2]
cross-fitted over questions: gap 87.3 [82.2, 89.6]; reliable 4.8 [4.5, 5.8]

| detector | gap AUROC | R@95 | path | incomplete | decoupling | unsound |
|---|---|---|---|---|---|---|
| linear@27ccb00aa671 | 0.959 [0.950, 0.968] | 87.6 [82.4, 89.7] | 0.953 [0.941, 0.966] | - | 0.975 [0.967, 0.983] | - |
| word overlap | 0.660 [0.640, 0.679] | 0.0 [0.0, 0.0] | 0.553 [0.530, 0.576] | - | 0.726 [0.704, 0.747] | - |
"""
JUDGE_RECORD = """\
$ python studies/campaigns/judge_real.py --base-url URL \\
    --per-set 60
# hardware: one GPU
127.0.0.1/a-model on roscoe: 60 responses, in percent
label    judged            agreement          balanced  kappa  found  missed  false alarms  in words
L       0 of 60                - [-]             - [-]      -      0       0             0  unjudged
K      39 of 58     33.3 [18.6-47.5]  48.1 [37.5-55.0]   -2.6      1      25             1  not told from chance
roscoe: agrees / judged / labelled
"""
REPORT_RECORD = """\
# dataset: confusable-short
# split: test
# origin: world
# licence: Apache-2.0, generated
$ eclose detect evaluate sets/confusable-short --verdicts sets/confusable-short/verdicts.jsonl
200 responses, 0 of them undecided; 40 questions with a decided one.

- verifier: mine\\@2

| group | n | verifier AUC | verifier R@95 |
| --- | --- | --- | --- |
| path deviation | 40 | 0.929 | 87.5 |

| detector | AUROC | R@95 | FPR | CF FPR | CF recall | threshold |
| --- | --- | --- | --- | --- | --- | --- |
| verifier | 0.923 [0.890, 0.950] | 84.2 [70.0, 90.0] | 5.0 [0.0, 5.0] | 5.0 [2.5, 7.5] | 83.3 [70.0, 91.0] | 0.414 |
"""


def write_record(folder, name, text):
    path = folder / "docs" / "records" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def rows(tmp_path):
    path = write_record(tmp_path, "detect_verifier.txt", DETECTOR_RECORD)
    parsed = parse_detector_tables(read_record(path))
    return [
        replace(row, record="docs/records/detect_verifier.txt", date="2026-11-16", commit="4b424493") for row in parsed
    ]


def value_of(row, name):
    return next((metric.value, metric.low, metric.high) for metric in row.metrics if metric.name == name)


def test_committed_rows_are_those_of_the_records():
    assert benchmark_page.check_rows() == []


def test_committed_files_are_up_to_date():
    for path, text in benchmark_page.make_pages().items():
        assert path.read_text("utf-8") == text, path.name


def test_rows_are_valid_by_the_schema():
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    validator = jsonschema_rs.validator_for(json.loads(benchmark_page.SCHEMA.read_text("utf-8")))
    for line in benchmark_page.RESULTS.read_text("utf-8").splitlines():
        validator.validate(json.loads(line))
        assert not validator.is_valid({**json.loads(line), "remark": ""})


def test_a_table_of_detectors_is_parsed(rows):
    verifier, overlap = rows
    assert (verifier.kind, verifier.system, verifier.variant) == ("detector", "linear@27ccb00aa671", "all features")
    assert (verifier.dataset, verifier.split, verifier.n) == ("confusable-short", "test", 3000)
    assert value_of(verifier, "AUROC of the gap") == (0.959, 0.950, 0.968)
    assert value_of(verifier, "recall of the gap, cross-fitted") == (87.3, 82.2, 89.6)
    assert value_of(verifier, "AUROC of incomplete reasoning") == (None, None, None)
    assert (overlap.kind, overlap.variant) == ("control", "")
    assert [metric.line for metric in overlap.metrics] == [11] * 6


def test_labels_of_a_judge_are_parsed_with_their_numbers(tmp_path):
    (row,) = parse_judged_sets(read_record(write_record(tmp_path, "judge_real-mine.txt", JUDGE_RECORD)))
    assert (row.system, row.dataset, row.n, row.hardware) == ("a-model", "ROSCOE", 60, "one GPU")
    assert row.command == "python studies/campaigns/judge_real.py --base-url URL --per-set 60"
    assert value_of(row, "balanced accuracy, K") == (48.1, 37.5, 55.0)
    assert value_of(row, "balanced accuracy, L") == (None, None, None)
    assert {metric.n for metric in row.metrics} == {0, 39}


def test_the_report_of_a_submitted_detector_is_parsed(tmp_path):
    (row,) = parse_detector_report(read_record(write_record(tmp_path, "detect_report-mine.txt", REPORT_RECORD)))
    assert (row.system, row.variant, row.split, row.n) == ("verifier", "mine@2", "test", 200)
    assert value_of(row, "recall of the gap, cross-fitted") == (83.3, 70.0, 91.0)
    assert value_of(row, "AUROC of path deviation") == (0.929, None, None)
    assert benchmark_page.collect_rows(tmp_path / "docs" / "records") == [row]


def test_of_two_runs_of_a_system_the_larger_is_listed(tmp_path):
    record = write_record(
        tmp_path, "judge_real.txt", JUDGE_RECORD + JUDGE_RECORD.replace("60 responses", "90 responses")
    )
    assert [row.n for row in benchmark_page.collect_rows(record.parent)] == [90]


def test_right_rows_have_no_problem(tmp_path, rows):
    assert benchmark_page.find_problems(rows, tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"record": "docs/records/absent.txt"}, "is no record"),
        ({"record": "../detect_verifier.txt"}, "is no record"),
        ({"n": 2999}, "does not have the number 2999"),
        ({"date": ""}, "no date"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path, rows, change, message):
    (tmp_path.parent / "detect_verifier.txt").write_text(DETECTOR_RECORD, "utf-8")
    (problem,) = benchmark_page.find_problems([replace(rows[0], **change)], tmp_path)
    assert message in problem


@pytest.mark.parametrize("change", [{"value": 0.960}, {"low": 0.9}, {"high": 0.99}, {"line": 11}, {"line": 99}])
def test_a_value_that_is_not_in_its_line_is_refused(tmp_path, rows, change):
    metrics = [replace(m, **change) if m.name == "AUROC of the gap" else m for m in rows[0].metrics]
    (problem,) = benchmark_page.find_problems([replace(rows[0], metrics=tuple(metrics))], tmp_path)
    assert "AUROC of the gap" in problem


def test_two_rows_with_one_key_are_refused(tmp_path, rows):
    (problem,) = benchmark_page.find_problems([rows[0], rows[0]], tmp_path)
    assert "another row" in problem


@pytest.mark.parametrize(("field", "value"), [("n", "many"), ("kind", "oracle"), ("remark", ""), ("metrics", None)])
def test_a_line_that_breaks_the_schema_is_refused(tmp_path, field, value):
    line = json.loads(benchmark_page.RESULTS.read_text("utf-8").splitlines()[0])
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({**line, field: value}) + "\n", "utf-8")
    with pytest.raises(ValueError, match=r"results\.jsonl, line 1"):
        benchmark_page.read_rows(path)


def test_digits_of_hashes_and_names_are_no_numbers():
    assert find_numbers("| linear@27ccb00aa671 | 0.959 [0.950-0.968] | 3,000 of Qwen2.5") == {0.959, 0.95, 0.968, 3000}


def test_the_page_prints_values_as_the_record_does(rows):
    page = format_page(rows)
    assert "| linear@27ccb00aa671, all features | 0.959 [0.950, 0.968] | 87.6 [82.4, 89.7] |" in page
    assert "| *word overlap* | 0.660 [0.640, 0.679] | 0.0 [0.0, 0.0] |" in page
    assert "n = 3,000. `python studies/campaigns/detect_verifier.py --test`" in page
