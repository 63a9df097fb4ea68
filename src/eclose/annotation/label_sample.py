"""Label some of one's own responses: a sample that corrects the rates of all, drawn by what the judge said of them.

Rare failures would hardly occur among a hundred drawn with equal chance. So every group that the judge sees is drawn
from by the square root of its size: large groups give more, small ones give enough. What people then say of each is
weighed by how many it stands for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from eclose.annotation import create_tasks
from eclose.annotation.accounts import people
from eclose.annotation.accounts.people import Role
from eclose.annotation.accounts.tokens import kept
from eclose.annotation.material import add_questions, add_responses
from eclose.annotation.project import SETTINGS, Settings, create, open_project
from eclose.annotation.results.final_labels import settled_verdicts
from eclose.annotation.results.project_annotations import told
from eclose.core.identity import content_hash, hash_rank
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.jsonl import encode, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection

    from eclose.annotation.forms import Kind
    from eclose.annotation.project import Project
    from eclose.core.instance import Instance
    from eclose.core.judgment import Judgment
    from eclose.core.response import Response
    from eclose.core.verdict import SettledVerdict

SAMPLE = "sample.json"
ME = "me"
"""The one who labels, where there are no accounts."""
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Sample:
    """Which responses are labelled, and which group each of all belongs to."""

    n: int
    seed: int
    strata: Mapping[str, str]
    """The group of every response of the run."""
    chosen: tuple[str, ...]
    """Sorted, so that their order tells nothing."""
    content: str | None = None
    """The hash of the chosen responses with their questions, as they are shown; None before labelling begins."""

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """For each group, how many there are and how many were chosen."""
        taken = set(self.chosen)
        found: dict[str, tuple[int, int]] = {}
        for response, stratum in self.strata.items():
            size, chosen = found.get(stratum, (0, 0))
            found[stratum] = size + 1, chosen + (response in taken)
        return dict(sorted(found.items()))


def draw(responses: Iterable[str], judgments: Iterable[Judgment], *, n: int, seed: int) -> Sample:
    """A sample of a run. Follows from the seed and the ids alone, so that drawing again gives the same."""
    groups = {one.response_id: one.verdict.trace_group for one in judgments}
    strata = {response: str(groups.get(response) or NOT_JUDGED) for response in responses}
    members: defaultdict[str, list[str]] = defaultdict(list)
    for response, stratum in strata.items():
        members[stratum].append(response)
    if not 1 <= n <= len(strata):
        raise SettingError(f"n: {n} of {len(strata):,} responses cannot be drawn.")
    if n < len(members):
        raise SettingError(f"n: the judge sees {len(members)} groups ({', '.join(sorted(members))}). Label more.")
    chosen = []
    for stratum, count in shares({name: len(some) for name, some in members.items()}, n).items():
        ranked = sorted(members[stratum], key=lambda response: (hash_rank("label", seed, response), response))
        chosen += ranked[:count]
    return Sample(n, seed, strata, tuple(sorted(chosen)))


def shares(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """How many of each group, by the square root of its size: at least one, no more than there are, n in all."""
    taken = dict.fromkeys(sorted(sizes), 1)
    while sum(taken.values()) < n:
        # One at a time to the group that is furthest behind its share: no rounding to put right afterwards.
        open_groups = [name for name in taken if taken[name] < sizes[name]]
        behind = max(open_groups, key=lambda name: (sqrt(sizes[name]) / (taken[name] + 0.5), name))
        taken[behind] += 1
    return taken


def begin(
    folder: Path,
    instances: Mapping[str, Instance],
    responses: Sequence[Response],
    sample: Sample,
    kind: Kind,
    now: datetime,
) -> Project:
    """Make a project of one person for a sample, or open the one that is there where the same sample was drawn before.

    Raises where another sample was begun, or where the responses or questions of this one were changed since.
    """
    members = set(sample.chosen)
    chosen = [response for response in responses if response.id in members]
    if lost := [response for response in chosen if response.instance_id not in instances]:
        raise UserError(f"response {lost[0].id!r} answers {lost[0].instance_id!r}, which is not among the questions.")
    questions = {response.instance_id: instances[response.instance_id] for response in chosen}
    shown = sorted(encode(record).decode() for record in (*chosen, *questions.values()))
    sample = replace(sample, content=content_hash(shown))
    if (folder / SETTINGS).exists():
        refuse_other(folder, sample)
        return open_project(folder)
    settings = Settings(folder.resolve().parent.name, sample.seed, share_questions=True)

    def fill(connection: Connection) -> None:
        add_questions(connection, questions.values())
        add_responses(connection, chosen)
        me = people.add(connection, ME, Role.ANNOTATOR, None, people.NO_PASSWORD, now)
        create_tasks.give_responses(connection, [me], settings, per_response=1, kind=kind)

    folder.mkdir(parents=True, exist_ok=True)
    with AtomicFile(folder / SAMPLE) as file:
        file.write(json.dumps({**asdict(sample), "begun": kept(now)}, indent=1).encode() + b"\n")
    return create(folder, settings, begin=fill)


def read_sample(folder: Path) -> Sample:
    """The sample that is being labelled."""
    words = json.loads((folder / SAMPLE).read_text("ascii"))
    return parse(Sample, words, extra="ignore")


def refuse_other(folder: Path, sample: Sample) -> None:
    """Raise where another sample was begun: its labels would be weighed wrongly."""
    begun = read_sample(folder)
    if replace(begun, content=sample.content) != sample:
        raise UserError(
            f"{folder}: another sample is being labelled (other responses or judgments, n or seed). Go on with the same"
            " settings, or move that folder away to begin anew."
        )
    if begun.content != sample.content:
        raise UserError(
            f"{folder}: the responses or questions of this sample were changed since its labelling began. Put them"
            " back, or move that folder away to begin anew."
        )


def verdicts(project: Project) -> list[SettledVerdict]:
    """What was labelled so far, as results that other commands read."""
    with project.reading() as connection:
        return list(settled_verdicts(told(connection)))
