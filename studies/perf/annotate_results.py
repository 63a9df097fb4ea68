"""Time of agreement report, export and import at the paper's size, 2,598 responses by two of six people."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.values.judgment import Judgment, LocalFailure, StepJudgment
from eclose_annotate.annotations import Annotation, AnnotationSet, group_annotations
from eclose_annotate.choices import LabelExportFormat
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.results.agreement_report import build_agreement_report
from eclose_annotate.results.export_files import ANNOTATIONS, export_annotations
from eclose_annotate.results.import_labels import read_label_files
from studies.perf.result import print_result

RESPONSES, PEOPLE, STEPS = 2_598, 6, 5
GOAL = 5.0
"""Seconds for the report."""
FAILURES = tuple(LocalFailure)


def make_step(rng: np.random.Generator) -> StepJudgment:
    """Draw a judgment of a step: nearly always substantive, mostly sound."""
    if rng.random() < 0.05:
        return StepJudgment(substantive=False)
    sound = bool(rng.random() < 0.9)
    return StepJudgment(True, sound, None if sound else FAILURES[rng.integers(len(FAILURES))])


def annotation(number: int, person: int, rng: np.random.Generator) -> Annotation:
    """Draw the annotation of a response by a person."""
    steps = tuple(make_step(rng) for _ in range(STEPS))
    aligned, closed, complete, correct = (rng.random(4) < 0.95).tolist()
    name = f"A{person + 1}"
    judgment = Judgment(f"r{number}", name, steps, aligned, closed, complete, correct)
    return Annotation(
        f"r{number}", f"q{number // 3}", AnnotationTaskKind.RESPONSE, 2, name, judgment, benchmark=f"B{number % 3}"
    )


def make_annotations(rng: np.random.Generator) -> AnnotationSet:
    """Make annotations of every response by two people."""
    pairs = [(number, (number + second) % PEOPLE) for number in range(RESPONSES) for second in (0, 1)]
    return group_annotations(annotation(number, person, rng) for number, person in pairs)


def main() -> int:
    """Time report, export and import, and print whether the goal holds."""
    annotations = make_annotations(np.random.default_rng(0))
    start = perf_counter()
    report = build_agreement_report(annotations)
    seconds = perf_counter() - start
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        start = perf_counter()
        formats = [LabelExportFormat.JSONL, LabelExportFormat.CSV]
        export_annotations(annotations, out, stage="annotate export", settings={}, formats=formats)
        print(f"export as JSON Lines and CSV: {perf_counter() - start:.2f} s")
        start = perf_counter()
        back = read_label_files([out / ANNOTATIONS]).annotations
        print(f"import: {perf_counter() - start:.2f} s; the same came back: {back == annotations}")
    assert report.responses is not None
    print(f"{report.responses.compared:,} responses, {report.resamples:,} resamples: {seconds:.2f} s")
    holds = seconds < GOAL and report.responses.compared == RESPONSES and back == annotations
    return print_result(
        name="annotation report",
        value=round(seconds, 2),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
