"""What comes of annotation at the paper's size, 2,598 responses by two of six people: report, export and import."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from eclose.annotation.annotations import Annotation, Annotations, group_annotations
from eclose.annotation.forms import TaskKind
from eclose.annotation.results.agreement_report import report_agreement
from eclose.annotation.results.export import export_annotations
from eclose.annotation.results.formats import ANNOTATIONS, ExportFormat
from eclose.annotation.results.import_labels import read_labels
from eclose.core.judgment import Judgment, LocalFailure, StepJudgment

RESPONSES, PEOPLE, STEPS = 2_598, 6, 5
GOAL = 5.0
"""Seconds for the report."""
FAILURES = tuple(LocalFailure)


def make_step(rng: np.random.Generator) -> StepJudgment:
    """Nearly always substantive, mostly sound."""
    if rng.random() < 0.05:
        return StepJudgment(substantive=False)
    sound = bool(rng.random() < 0.9)
    return StepJudgment(True, sound, None if sound else FAILURES[rng.integers(len(FAILURES))])


def annotation(number: int, person: int, rng: np.random.Generator) -> Annotation:
    """One person's word on one response."""
    steps = tuple(make_step(rng) for _ in range(STEPS))
    aligned, closed, complete, correct = (rng.random(4) < 0.95).tolist()
    name = f"A{person + 1}"
    judgment = Judgment(f"r{number}", name, steps, aligned, closed, complete, correct)
    return Annotation(f"r{number}", f"q{number // 3}", TaskKind.RESPONSE, 2, name, judgment, benchmark=f"B{number % 3}")


def make_annotations(rng: np.random.Generator) -> Annotations:
    """Two people for each response."""
    pairs = [(number, (number + second) % PEOPLE) for number in range(RESPONSES) for second in (0, 1)]
    return group_annotations(annotation(number, person, rng) for number, person in pairs)


def main() -> int:
    """Time the three and say whether the goal holds."""
    annotations = make_annotations(np.random.default_rng(0))
    start = perf_counter()
    found = report_agreement(annotations)
    seconds = perf_counter() - start
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        start = perf_counter()
        formats = [ExportFormat.JSONL, ExportFormat.CSV]
        export_annotations(annotations, out, stage="annotate export", settings={}, formats=formats)
        print(f"export as JSON Lines and CSV: {perf_counter() - start:.2f} s")
        start = perf_counter()
        back = read_labels([out / ANNOTATIONS]).annotations
        print(f"import: {perf_counter() - start:.2f} s; the same came back: {back == annotations}")
    assert found.responses is not None
    print(f"{found.responses.compared:,} responses, {found.resamples:,} resamples: {seconds:.2f} s")
    holds = seconds < GOAL and found.responses.compared == RESPONSES and back == annotations
    result = {
        "name": "annotation report",
        "value": round(seconds, 2),
        "unit": "s",
        "goal": f"< {GOAL:g}",
        "holds": holds,
    }
    print(json.dumps(result))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
