"""Where the questions and responses of a run come from: its folder, two files, or one that holds both side by side.

Calls no model, so that reading responses needs none of the packages that calling one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import detect_layout, scan_instances, scan_responses
from eclose.errors import SettingError
from eclose.store.records.counts import Counts
from eclose.store.records.json_reader import read_objects, require_file
from eclose.store.runs.folder import INSTANCES, RESPONSES
from eclose.store.runs.step import RunStep


@dataclass(frozen=True)
class Sources:
    """Where questions and responses lie."""

    instances: Path
    responses: Path
    counts: Mapping[str, Counts] = field(default_factory=dict, compare=False)
    """Where the records of another tool's file went, when questions and responses were taken from one."""


def find_sources(given: Path, out: Path, instances: Path | None = None, layout: RecordLayout = RecordLayout.AUTO) -> Sources:
    """Questions and responses of a run's folder, of two files, or taken apart out of one."""
    if given.is_dir():
        return _checked(Sources(instances or given / INSTANCES, given / RESPONSES))
    require_file(given)
    if not _holds_responses(given):
        return _taken_apart(given, out, detect_layout(given) if layout is RecordLayout.AUTO else layout)
    if instances is None:
        raise SettingError(f"{given}: which questions do these answer? Name their file with --instances.")
    return _checked(Sources(instances, given))


def _holds_responses(path: Path) -> bool:
    """Whether the first record that can be read is a response of ours."""
    first = next((raw.value for raw in read_objects(path) if raw.value is not None), {})
    return {"instance_id", "trace"} <= first.keys()


def _checked(sources: Sources) -> Sources:
    require_file(sources.instances)
    require_file(sources.responses)
    return sources


def _taken_apart(given: Path, out: Path, layout: RecordLayout) -> Sources:
    """Write the questions and the responses of one file into two, and count where its records went."""
    settings = {"format": layout.value}
    questions = RunStep("judge instances", settings, (given,), out / INSTANCES)
    responses = RunStep("judge responses", settings, (given,), out / RESPONSES)
    known = questions.claim()
    of_questions = known.counts if known else questions.write(scan_instances(given, layout=layout))
    known = responses.claim()
    of_responses = known.counts if known else responses.write(scan_responses(given, layout=layout))
    counts = {f"questions in {given.name}": of_questions, f"responses in {given.name}": of_responses}
    return Sources(questions.out, responses.out, counts)
