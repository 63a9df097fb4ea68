"""Labels of a sample of responses by simulated annotators, who work through a project over HTTP.

Two annotators with the error rates of the paper's people label each response, and an adjudicator who is always right
settles where they differ. The truth comes from the world's oracle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from eclose.files.jsonl import read_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.project import open_annotation_project
from eclose_annotate.read import read_annotations
from eclose_annotate.results.export_files import VERDICTS, export_annotations
from eclose_annotate.setup import AnnotationCrew
from eclose_world.oracle.judge import judge_by_oracle

from .error_model import SimulatedAnnotator, Truth
from .labeller import TruthIndex, label_in_shifts
from .material import World
from .paper_rates import fit_annotator
from .server import Server, make_project

if TYPE_CHECKING:
    from pathlib import Path

CREW = AnnotationCrew(annotators=[f"A{number}" for number in range(1, 9)], adjudicators=["A9"])
"""Enough people that none sees two of the four methods' responses to one question."""


class LabelledSample(NamedTuple):
    """People's verdicts on a sample."""

    labels: Path
    """File of final verdicts."""
    labelled: int
    left_out: Counter[str]
    """Responses that were not given to people, by reason."""


def label_sample(sample: Path, folder: Path) -> LabelledSample:
    """Have the responses of a sample labelled; labels that are there already are kept.

    Args:
        sample: Folder with ``instances.jsonl`` and ``responses.jsonl``.
        folder: Folder of the annotation project and of the exported labels.
    """
    world, left_out = _find_truths(sample)
    labels = folder / "labels" / VERDICTS
    if not labels.is_file():
        project = folder / "project"
        links = make_project(project, world, CREW)
        people = fit_annotator(world.truths)
        annotators = {name: replace(people, name=name) for name in CREW.annotators}
        annotators |= {name: SimulatedAnnotator(name) for name in CREW.adjudicators}
        with Server(project) as server:
            shifts = (CREW.annotators, CREW.adjudicators)
            label_in_shifts(server.origin, links, annotators, TruthIndex(world.truths), shifts)
        _export(project, labels.parent)
    return LabelledSample(labels, len(world.responses), left_out)


def _find_truths(sample: Path) -> tuple[World, Counter[str]]:
    """Return the responses that the oracle decides, with the truth about them, and count the others."""
    instances = {instance.id: instance for instance in read_records(sample / INSTANCES_FILE, Instance)}
    responses: list[Response] = []
    truths: list[Truth] = []
    left_out: Counter[str] = Counter()
    for response in read_records(sample / RESPONSES_FILE, Response):
        instance = instances[response.instance_id]
        judgment = judge_by_oracle(instance, response)
        labels = judgment.verdict
        if response.answer is None or not response.trace.texts:
            left_out["no answer or no trace"] += 1
        elif None in (labels.locally_sound, labels.aligned, labels.closed, labels.complete, labels.correct):
            left_out["the oracle cannot decide"] += 1
        else:
            steps = tuple(response.trace.texts)
            responses.append(response)
            truths.append(Truth(response.id, instance.question, steps, response.answer, judgment.steps, labels))
    answered = {response.instance_id for response in responses}
    return World([instances[id_] for id_ in sorted(answered)], responses, truths), left_out


def _export(project_folder: Path, out: Path) -> None:
    project = open_annotation_project(project_folder)
    with project.reading() as connection:
        annotations, material = read_annotations(connection), read_stored_material(connection)
    project.close()
    export_annotations(annotations, out, stage="annotate export", settings={}, material=material)
