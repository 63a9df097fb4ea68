"""A stratified sample of a run for one person to label, from which the rates of the whole run are corrected.

Rare failures would hardly occur among a hundred responses drawn uniformly. The strata are therefore the groups that the
judge assigned, and each contributes in proportion to the square root of its size. Labels are later weighted by how many
responses each stands for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import format_count
from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.jsonl import encode_json_line, parse_dataclass
from eclose.values.identity import content_hash, hash_sort_key
from eclose_annotate import events, tasks
from eclose_annotate.events import format_utc_timestamp
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.material_store import add_questions, add_responses, read_stored_material
from eclose_annotate.people import people
from eclose_annotate.people.people import PersonRole
from eclose_annotate.project import (
    SETTINGS_FILE,
    AnnotationProjectSettings,
    create_annotation_project,
    open_annotation_project,
)
from eclose_annotate.read import read_annotations
from eclose_annotate.results.final_labels import collect_final_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection

    from eclose.values.instance import Instance
    from eclose.values.judgment import Judgment
    from eclose.values.response import Response
    from eclose.values.verdict import SettledVerdict
    from eclose_annotate.project import AnnotationProject

SAMPLE_FILE = "sample.json"
LABELLER_NAME = "me"
"""Name of the only annotator of a project without accounts."""
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class LabelSample:
    """The responses to label, and the stratum of every response of the run."""

    n: int
    seed: int
    strata: Mapping[str, str]
    """Stratum of every response of the run, by response id."""
    chosen: tuple[str, ...]
    """Ids of the sampled responses. Sorted, so that their order reveals no stratum."""
    steps: bool = False
    """Whether every step is labelled, as in the full protocol."""
    content: str | None = None
    """Hash of the sampled responses and their questions; None before labelling begins."""

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Size and sample size of each stratum."""
        sampled = set(self.chosen)
        sizes: dict[str, tuple[int, int]] = {}
        for response, stratum in self.strata.items():
            size, chosen = sizes.get(stratum, (0, 0))
            sizes[stratum] = size + 1, chosen + (response in sampled)
        return dict(sorted(sizes.items()))


def draw_label_sample(
    responses: Iterable[str], judgments: Iterable[Judgment], *, n: int, seed: int, steps: bool = False
) -> LabelSample:
    """Draw a stratified sample of a run. Depends on the seed and the ids alone, so that it can be repeated.

    A larger sample with the same seed contains the smaller one.
    """
    groups = {judgment.response_id: judgment.verdict.trace_group for judgment in judgments}
    strata = {response: str(groups.get(response) or NOT_JUDGED) for response in responses}
    members: defaultdict[str, list[str]] = defaultdict(list)
    for response, stratum in strata.items():
        members[stratum].append(response)
    if not 1 <= n <= len(strata):
        raise SettingError(f"n: cannot draw {n} of {format_count(len(strata), 'response')}.")
    if n < len(members):
        raise SettingError(
            f"n: must be at least {len(members)}, one for each group of the judge ({', '.join(sorted(members))})."
        )
    chosen = []
    for stratum, count in allocate_to_strata({name: len(ids) for name, ids in members.items()}, n).items():
        # By hash, so that the order of the files has no influence.
        ranked = sorted(members[stratum], key=lambda response: (hash_sort_key("label", seed, response), response))
        chosen += ranked[:count]
    return LabelSample(n, seed, strata, tuple(sorted(chosen)), steps)


def allocate_to_strata(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """Return how many of ``n`` to draw from each stratum, by the square root of its size, at least one from each."""
    counts = dict.fromkeys(sorted(sizes), 1)
    while sum(counts.values()) < n:
        # One at a time to the stratum furthest behind its share (Sainte-Lague): no rounding to correct afterwards.
        open_groups = [name for name in counts if counts[name] < sizes[name]]
        behind = max(open_groups, key=lambda name: (sqrt(sizes[name]) / (counts[name] + 0.5), name))
        counts[behind] += 1
    return counts


def begin_label_project(
    folder: Path, instances: Mapping[str, Instance], responses: Sequence[Response], sample: LabelSample, now: datetime
) -> AnnotationProject:
    """Create a project of one person for a sample, or open the existing one and add what the sample has more.

    Raises where the folder holds a sample that this one does not contain, or texts have changed since.
    """
    members = set(sample.chosen)
    chosen = [response for response in responses if response.id in members]
    if orphans := [response for response in chosen if response.instance_id not in instances]:
        orphan = orphans[0]
        raise UserError(f"response {orphan.id!r} answers {orphan.instance_id!r}, which is not among the questions.")
    sample = replace(sample, content=_hash_content(instances, chosen))
    if (folder / SETTINGS_FILE).exists():
        if _check_contained_sample(folder, instances, chosen, sample) != sample:
            _write_label_sample(folder, sample, now)
        project = open_annotation_project(folder)
        _add_missing_responses(project, instances, chosen, sample)
        return project
    # One person labels all sampled responses, so questions may repeat.
    settings = AnnotationProjectSettings(folder.resolve().parent.name, sample.seed, share_questions=True)

    def fill(connection: Connection) -> None:
        add_questions(connection, _questions_of(instances, chosen).values())
        add_responses(connection, chosen)
        annotator = people.add_person(connection, LABELLER_NAME, PersonRole.ANNOTATOR, None, people.NO_PASSWORD, now)
        tasks.assign_responses_to_annotators(connection, [annotator], settings, per_response=1, kind=_kind(sample))

    # Before the project: an interrupted start leaves a sample without a project, which is overwritten.
    folder.mkdir(parents=True, exist_ok=True)
    _write_label_sample(folder, sample, now)
    return create_annotation_project(folder, settings, begin=fill)


def find_label_sample(folder: Path) -> LabelSample | None:
    """Return the sample of a project's folder; None where the folder holds none."""
    if not (folder / SETTINGS_FILE).exists():
        return None
    fields = json.loads((folder / SAMPLE_FILE).read_text("ascii"))
    return parse_dataclass(LabelSample, fields, extra="ignore")


def _write_label_sample(folder: Path, sample: LabelSample, now: datetime) -> None:
    with AtomicFile(folder / SAMPLE_FILE) as file:
        file.write(json.dumps({**asdict(sample), "begun": format_utc_timestamp(now)}, indent=1).encode() + b"\n")


def _check_contained_sample(
    folder: Path, instances: Mapping[str, Instance], chosen: Sequence[Response], sample: LabelSample
) -> LabelSample:
    """Return the sample of the folder; raise where this one does not contain it: labels would get wrong weights."""
    stored = find_label_sample(folder)
    assert stored is not None
    if stored.steps != sample.steps:
        current, other = ("with --steps", "--no-steps") if stored.steps else ("without --steps", "--steps")
        raise UserError(
            f"{folder}: was started {current}, and {other} would ask for other labels. Continue as it was started,"
            " or move that folder away to start again."
        )
    if stored.n > sample.n:
        raise UserError(
            f"{folder}: its sample has {stored.n:,} responses, and --n {sample.n:,} cannot make it smaller. Leave --n"
            " out to continue, or name a larger number to add responses."
        )
    if (stored.seed, stored.strata) != (sample.seed, sample.strata) or not set(stored.chosen) <= set(sample.chosen):
        raise UserError(
            f"{folder}: holds another sample (other responses or judgments, or another seed). Continue with the same"
            " files and --seed, or move that folder away to start again."
        )
    members = set(stored.chosen)
    if stored.content != _hash_content(instances, [response for response in chosen if response.id in members]):
        raise UserError(
            f"{folder}: the responses or questions of this sample have changed since labelling began. Restore"
            " them, or move that folder away to start again."
        )
    return stored


def _add_missing_responses(
    project: AnnotationProject, instances: Mapping[str, Instance], chosen: Sequence[Response], sample: LabelSample
) -> None:
    """Add the sampled responses that the project does not have, behind its tasks.

    The sample is written before: after a crash in between, the next start adds what is missing.
    """
    with project.reading() as connection:
        stored = read_stored_material(connection)
    added = [response for response in chosen if response.id not in stored.responses]
    if not added:
        return
    questions = [question for id_, question in _questions_of(instances, added).items() if id_ not in stored.instances]
    with project.writing() as connection:
        add_questions(connection, questions)
        add_responses(connection, added)
        annotator = people.find_person(connection, LABELLER_NAME)
        assert annotator is not None
        tasks.append_response_tasks(connection, annotator, project.settings, kind=_kind(sample))
        detail = {"questions": len(questions), "responses": len(added)}
        events.append_audit_event(connection, LABELLER_NAME, "filled", detail=detail)


def _kind(sample: LabelSample) -> AnnotationTaskKind:
    return AnnotationTaskKind.RESPONSE if sample.steps else AnnotationTaskKind.SHORT


def _questions_of(instances: Mapping[str, Instance], responses: Iterable[Response]) -> dict[str, Instance]:
    return {response.instance_id: instances[response.instance_id] for response in responses}


def _hash_content(instances: Mapping[str, Instance], chosen: Sequence[Response]) -> str:
    """Return a hash of the shown texts. Responses outside the sample may change without harm to the labels."""
    questions = _questions_of(instances, chosen).values()
    return content_hash(sorted(encode_json_line(record).decode() for record in (*chosen, *questions)))


def read_labelled_verdicts(project: AnnotationProject) -> list[SettledVerdict]:
    """Return the verdicts labelled so far, as other commands read them."""
    with project.reading() as connection:
        return list(collect_final_verdicts(read_annotations(connection)))
