"""Cases: responses joined with their questions and judgments, and the checks that they belong together.

An id names one question and one response of a run's folder. Two questions under one id are refused, and judgments are
joined only to the files they were made from (decision 0029).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, permutations
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from eclose.core.answers import match_answer, match_any_answer
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.core.verdict import SettledVerdict, Verdict
from eclose.errors import RecordError, SettingError, UserError
from eclose.store.records.json_reader import read_objects, require_file
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, scan_records
from eclose.store.runs.folder import INSTANCES, JUDGMENTS, LEDGER, RESPONSES
from eclose.store.runs.provenance import ProvenanceCheck, check_result, find_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from eclose.core.three_valued import Label

T = TypeVar("T", Instance, Response, Judgment)

LeftOut: TypeAlias = tuple[str, str]
"""The id of a response that could not be diagnosed, and why."""
Rejects: TypeAlias = Mapping[str, Mapping[str, int]]
"""Records that were not used, by file and by reason."""

UNCHECKED = "No manifest says which responses these judgments were made from, so that was not checked."
QUESTION_REMEDY = (
    "Responses name their question by its id alone: give every question its own, such as the dataset's name before the"
    " number, or keep datasets in folders of their own."
)
_TAKEN_APART = frozenset({"judge responses", "data from-inspect"})
"""Steps that turn another tool's records into responses: what they could not read is a response all the same."""


class Evidence(StrEnum):
    """Whether the passages settle the question."""

    SUFFICIENT = "sufficient"
    INSUFFICIENT = "insufficient"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Case:
    """One response, what it answers, and what a judge said of it."""

    instance: Instance
    response: Response
    judgment: Judgment

    @property
    def verdict(self) -> Verdict:
        """The five labels."""
        return self.judgment.verdict

    @property
    def evidence(self) -> Evidence:
        """Whether the passages settle the question."""
        label = self.judgment.evidence_sufficient
        if label is None:
            return Evidence.UNJUDGED
        return Evidence.SUFFICIENT if label else Evidence.INSUFFICIENT

    @property
    def matched(self) -> Label:
        """Whether the answer and the reference match by the rule of D.5.3, without a judge; None where one is missing.

        One of them, normalised, must stand in the other as an unbroken span. Aliases do not count.
        """
        if self.response.answer is None or self.instance.reference_answer is None:
            return None
        return match_answer(self.response.answer, self.instance.reference_answer)

    @property
    def matched_with_aliases(self) -> Label:
        """The same against the reference and its aliases: a match of any of them counts."""
        if self.response.answer is None or not self.instance.accepted_answers:
            return None
        return match_any_answer(self.response.answer, self.instance.accepted_answers)

    @property
    def row(self) -> SettledVerdict:
        """As the metrics take it."""
        instance, response = self.instance, self.response
        return SettledVerdict(response.id, instance.id, self.verdict, instance.benchmark, response.source)


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of one or more runs, with everything that a reader of their rates must be told."""

    cases: tuple[Case, ...]
    left_out: tuple[LeftOut, ...] = ()
    """Responses that make no case, with the reason."""
    rejected: Rejects = field(default_factory=dict)
    """Records of the input files that were not used."""
    stale: tuple[str, ...] = ()
    """Files that are not those that were judged, a sentence each; only where ``allow_stale`` lets them pass."""
    checked: bool = True
    """Whether manifests say what the judgments were made from."""

    @property
    def notices(self) -> tuple[str, ...]:
        """The sentences that a command prints before any rate."""
        return (*self.stale, *(() if self.checked else (UNCHECKED,)), *rejects_told(self.rejected))


def rejects_told(rejected: Rejects) -> tuple[str, ...]:
    """Return a sentence for each file with records that were not used: how many, and why."""
    return tuple(
        f"{name}: {sum(reasons.values()):,} not used"
        f" ({', '.join(f'{reason} {count:,}' for reason, count in sorted(reasons.items()))})."
        for name, reasons in rejected.items()
    )


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The questions and responses of a run's folder, each id once."""

    instances: Mapping[str, Instance]
    responses: tuple[Response, ...]
    left_out: tuple[LeftOut, ...] = ()
    """Responses that cannot be used, with the reason."""
    rejected: Rejects = field(default_factory=dict)


def read_run_files(run: Path, *, first_response: bool = False) -> RunFiles:
    """Read the questions and responses of a run; raises where one id stands for two of either.

    With ``first_response``, the first response of an id is used and the others are left out: a judge reads files so.
    """
    instances, of_instances, _ = _read_unique(run / INSTANCES, Instance, lambda instance: instance.id)
    responses, of_responses, left_out = _read_unique(
        run / RESPONSES, Response, lambda response: response.id, first=first_response
    )
    return RunFiles(
        instances,
        tuple(responses.values()),
        (*left_out, *_unread_before(run)),
        _nonempty({INSTANCES: of_instances, RESPONSES: of_responses}),
    )


def _read_unique(
    path: Path, kind: type[T], id_of: Callable[[T], str], *, first: bool = False
) -> tuple[dict[str, T], Counter[str], list[LeftOut]]:
    """Read records by id, count those that are not used, and list those that were lost.

    The same record twice counts as a duplicate. Other content under a known id raises, unless the first is to be used.
    So does a file in which nothing can be read.
    """
    require_file(path)
    values: dict[str, T] = {}
    places: dict[str, str] = {}
    rejected: Counter[str] = Counter()
    lost: list[LeftOut] = []
    first_error: RecordError | None = None
    for record in scan_records(path, kind):
        if record.value is None:
            first_error = first_error or record.error
            rejected[record.error_kind] += 1
            lost.append((f"{path.name} {record.where}", f"it cannot be read ({record.error_kind})"))
            continue
        id_ = id_of(record.value)
        if values.setdefault(id_, record.value) is record.value:
            places[id_] = record.where
        elif values[id_] == record.value:
            rejected[DUPLICATE] += 1
        elif first:
            rejected[ID_REUSED] += 1
            lost.append((id_, "a response of its id stands before it"))
        else:
            raise _reused(path, kind, id_, places[id_], record.where)
    if first_error is not None and not values:
        raise first_error
    return values, rejected, lost


def _reused(path: Path, kind: type[object], id_: str, first: str, second: str) -> RecordError:
    if kind is Judgment:
        problem = f"was judged twice, in {first} and {second}. Keep one judgment of each response."
        return RecordError(problem, path=path, record=f"response {id_}")
    noun, remedy = ("question", QUESTION_REMEDY) if kind is Instance else ("response", "Give every response its own.")
    return RecordError(f"the id {id_!r} is another {noun}'s in {first}. {remedy}", path=path, record=second)


def _nonempty(rejected: Rejects) -> dict[str, dict[str, int]]:
    return {name: dict(reasons) for name, reasons in rejected.items() if reasons}


def _rejected_before(run: Path) -> dict[str, Mapping[str, int]]:
    """Return what the steps that wrote the files of a run did not use, by file and step."""
    counts: dict[str, Mapping[str, int]] = {}
    for name in (INSTANCES, RESPONSES, JUDGMENTS):
        if sibling_path(run / name, "manifest.json").is_file() and (manifest := find_manifest(run / name)) is not None:
            counts[f"{name} ({manifest.stage})"] = {**manifest.counts.rejected, **manifest.counts.quarantined}
    return counts


def _unread_before(run: Path) -> list[LeftOut]:
    """Return the records of another tool's file that could not be read as responses."""
    manifest, unread = find_manifest(run / RESPONSES), sibling_path(run / RESPONSES, "quarantined.jsonl")
    if manifest is None or manifest.stage not in _TAKEN_APART or unread.name not in manifest.outputs:
        return []
    rows = (raw.value or {} for raw in read_objects(unread)) if unread.is_file() else ()
    return [(f"{', '.join(manifest.inputs)} {row.get('where')}", "it cannot be read") for row in rows]


def check_run(run: Path, *, allow_stale: bool = False) -> ProvenanceCheck:
    """Compare the judgments of a run with the questions and responses beside them, by the judgments' manifest.

    Raises where the judgments were made from other files, unless ``allow_stale``.
    """
    inputs = (run / INSTANCES, run / RESPONSES)
    for path in inputs:
        require_file(path)
    provenance = check_result(run / JUDGMENTS, inputs)
    remedy = f"Judge these responses (eclose judge {run} --judge MODEL)"
    return provenance.refuse_stale(run, remedy, allow_stale=allow_stale)


def read_cases(run: Path, *, allow_stale: bool = False) -> CaseSet:
    """Read the cases of a judged run.

    Raises where the judgments were made from other questions or responses, unless ``allow_stale``: then ``stale`` says
    so. A run without a manifest, such as labels from elsewhere, is read unchecked.
    """
    for name in (INSTANCES, RESPONSES):
        require_file(run / name)
    if not (run / JUDGMENTS).exists():
        raise UserError(_not_judged(run))
    provenance = check_run(run, allow_stale=allow_stale)
    files = read_run_files(run, first_response=provenance.checked)
    judgments, of_judgments, _ = _read_unique(run / JUDGMENTS, Judgment, lambda judgment: judgment.response_id)
    cases, left_out = join_cases(files.instances, files.responses, judgments)
    rejected = _nonempty({**files.rejected, JUDGMENTS: of_judgments, **_rejected_before(run)})
    return CaseSet(tuple(cases), (*left_out, *files.left_out), rejected, provenance.stale, checked=provenance.checked)


def _not_judged(run: Path) -> str:
    """Return what to do about a run without judgments, with how far its judging came."""
    total = sum(1 for _ in read_objects(run / RESPONSES))
    judged = _judged_so_far(run / LEDGER)
    command = f"eclose judge {run} --judge MODEL"
    if judged:
        return (
            f"{run}: {judged:,} of {total:,} responses are judged, and {JUDGMENTS} is written when all are."
            f" Run the same judge command again ({command}): it goes on from there."
        )
    return f"{run}: none of {total:,} responses is judged, there is no {JUDGMENTS}. Judge them first: {command}."


def _judged_so_far(ledger: Path) -> int:
    """Return how many responses a run has judged by its ledger; 0 where there is no ledger, or none that can be read.

    The file is opened read-only and without a lock: the run may be under way.
    """
    if not ledger.is_file():
        return 0
    by_run = "SELECT count(*) FROM ledger_outcomes WHERE stage = ? GROUP BY run ORDER BY 1 DESC LIMIT 1"
    try:
        connection = sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)
        try:
            row = connection.execute(by_run, (b"judge",)).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return 0
    return 0 if row is None else int(row[0])


def join_cases(
    instances: Mapping[str, Instance], responses: Iterable[Response], judgments: Mapping[str, Judgment]
) -> tuple[list[Case], list[LeftOut]]:
    """Join cases by id; returns them, and the responses that make none, with the reason."""
    cases, left = [], []
    seen: set[str] = set()
    for response in responses:
        instance, judgment = instances.get(response.instance_id), judgments.get(response.id)
        if response.id in seen:
            left.append((response.id, "a response of its id stands before it"))
        elif instance is None:
            left.append((response.id, "its question is missing"))
        elif judgment is None:
            left.append((response.id, "it was not judged"))
        else:
            cases.append(Case(instance, response, judgment))
        seen.add(response.id)
    return cases, left + [(lost, "it was judged, but is missing") for lost in judgments if lost not in seen]


def read_runs(runs: Sequence[Path], *, allow_stale: bool = False) -> CaseSet:
    """Read the cases of several judged runs together.

    Where two runs have a response of the same id, these are two responses, and then every id is written behind the name
    of its run. A run whose responses all stand in another one is refused: they would count twice.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise SettingError("a run is named twice, and its responses would count twice. Name it once.")
    sets = {name: read_cases(run, allow_stale=allow_stale) for name, run in zip(run_names(runs), runs, strict=True)}
    if len(sets) == 1:
        return next(iter(sets.values()))
    for (name, mine), (other, others) in permutations(sets.items(), 2):
        if mine.cases and {case.response for case in mine.cases} <= {case.response for case in others.cases}:
            raise UserError(
                f"every response of {name} stands in {other} too, and would count twice. "
                "Leave one of them out, or hold one against the other with --against."
            )
    refuse_other_questions(*(part.cases for part in sets.values()))
    ids = [case.response.id for part in sets.values() for case in part.cases]
    if len(set(ids)) < len(ids):
        sets = {name: _with_run_name(name, part) for name, part in sets.items()}
    return CaseSet(
        tuple(chain.from_iterable(part.cases for part in sets.values())),
        tuple(chain.from_iterable(part.left_out for part in sets.values())),
        {f"{name}/{file}": counts for name, part in sets.items() for file, counts in part.rejected.items()},
        tuple(f"{name}: {sentence}" for name, part in sets.items() for sentence in part.stale),
        checked=all(part.checked for part in sets.values()),
    )


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the folders; where two are called alike, the paths."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _with_run_name(name: str, part: CaseSet) -> CaseSet:
    """Return the cases with the name of their run before every id."""
    renamed = tuple(
        replace(
            case,
            response=replace(case.response, id=f"{name}/{case.response.id}"),
            judgment=replace(case.judgment, response_id=f"{name}/{case.response.id}"),
        )
        for case in part.cases
    )
    return replace(part, cases=renamed, left_out=tuple((f"{name}/{id_}", why) for id_, why in part.left_out))


def refuse_other_questions(*runs: Iterable[Case]) -> None:
    """Raise where one id stands for two questions: then runs share nothing but numbers."""
    questions: dict[tuple[str | None, str], str] = {}
    for case in chain(*runs):
        instance = case.instance
        known = questions.setdefault((instance.benchmark, instance.id), instance.question)
        if known != instance.question:
            raise UserError(
                f"question {instance.id} is {known!r} in one run and {instance.question!r} in another. "
                "Runs go together only where the same id is the same question."
            )
