"""Cases: responses joined with their questions and judgments, with checks that the files belong together.

An id names one question and one response of a run's folder. Two questions under one id are refused, and judgments are
joined only to the files they were made from (decision 0029).
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eclose.errors import RecordError, UserError
from eclose.files.growth import is_growing, read_growth
from eclose.files.json_reader import read_json_objects, require_regular_file
from eclose.files.jsonl import DUPLICATE, ID_REUSED, scan_records
from eclose.files.record_file import RecordFile, hash_ids
from eclose.files.run_folder import (
    GROWTH_FILE,
    INSTANCES_FILE,
    JUDGMENTS_FILE,
    RESPONSES_FILE,
    RUN_LEDGER_FILE,
    VALIDATION_FILE,
)
from eclose.files.step import companion_file_path
from eclose.files.verify import ProvenanceCheck, check_result_provenance, find_file_manifest
from eclose.readers.intake import describe_choice
from eclose.readers.spans import cases as traces
from eclose.reading.text import abstains
from eclose.values.answers import match_answer, match_any_answer
from eclose.values.instance import Instance
from eclose.values.judgment import PEOPLE_JUDGE, Judgment
from eclose.values.response import Response
from eclose.values.verdict import AbstentionOutcome, SettledVerdict, Verdict

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from eclose.stats.arrays import Flags
    from eclose.values.three_valued import Label

T = TypeVar("T")

LeftOutResponse: TypeAlias = tuple[str, str]
"""Id of a response that was not diagnosed, and the reason."""
RejectCounts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Number of unused records, by file and reason."""

NO_QUESTION, NOT_JUDGED = "its question is missing", "it was not judged"
NO_RESPONSE = "it was judged, but is missing"
REPEATED_ID = "an earlier response has the same id"
NAMED_TWICE = "a run is named twice, and its responses would count twice. Name it once."
UNCHECKED_CAVEAT = "No manifest says which responses these judgments were made from, so that was not checked."
QUESTION_REMEDY = (
    "Responses refer to a question by its id alone: give every question a unique id, such as the dataset's name and a"
    " number, or use one folder per dataset."
)
APPEND_STEP = "judge append"
"""Step that takes responses into a run that grows."""
CONVERSION_STEPS = frozenset({"judge responses", "data convert responses", "data from-inspect", APPEND_STEP})
"""Steps that convert another tool's records into responses. A response that they could not use is a lost one."""
PEOPLE_STEPS = frozenset({"annotate export", "annotate import"})
"""Steps that write labels settled by people as judgments."""
# Beginnings of the reasons why a rejected record is no lost response: it is there already, or asks nothing.
_NO_LOSS_REASONS = (DUPLICATE, traces.NO_QUESTION, traces.NO_SPAN)


class EvidenceSufficiency(StrEnum):
    """Whether the passages settle the question, by the judge's label."""

    SUFFICIENT = "sufficient"
    INSUFFICIENT = "insufficient"
    UNJUDGED = "unjudged"

    @classmethod
    def of(cls, label: Label) -> EvidenceSufficiency:
        """Return the kind of evidence by the judge's label."""
        if label is None:
            return cls.UNJUDGED
        return cls.SUFFICIENT if label else cls.INSUFFICIENT


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A response with its question and its judgment."""

    instance: Instance
    response: Response
    judgment: Judgment

    @property
    def verdict(self) -> Verdict:
        """The five labels."""
        return self.judgment.verdict

    @property
    def evidence(self) -> EvidenceSufficiency:
        """Whether the passages settle the question."""
        return EvidenceSufficiency.of(self.judgment.evidence_sufficient)

    @property
    def matched(self) -> Label:
        """Whether answer and reference match by the rule of appendix D.5.3; None where either is missing.

        One of them, normalised, must be a span of the other. No judge is involved, and aliases do not count.
        """
        return match_reference(self.instance, self.response)

    @property
    def matched_with_aliases(self) -> Label:
        """Whether the answer matches the reference or an alias by the same rule; None where either is missing."""
        return match_accepted_answers(self.instance, self.response)

    @property
    def abstention(self) -> AbstentionOutcome | None:
        """Whether the response was right to say that it found no answer; None where it says no such thing."""
        settled, answer = self.judgment.evidence_sufficient, self.response.answer
        if self.judgment.abstained:
            return AbstentionOutcome.of(settled)
        # Judgments of earlier versions and of people do not record it: only a wrong abstention is looked for.
        return AbstentionOutcome.WRONG if settled and answer is not None and abstains(answer) else None

    @property
    def abstains(self) -> bool:
        """Whether the response says that it found no answer."""
        return self.abstention is not None

    @property
    def row(self) -> SettledVerdict:
        """The verdict with its ids, as metrics take it."""
        instance, response = self.instance, self.response
        return SettledVerdict(response.id, instance.id, self.verdict, instance.benchmark, response.source)


def match_reference(instance: Instance, response: Response) -> Label:
    """Return whether the answer matches the reference answer; None where either is missing."""
    if response.answer is None or instance.reference_answer is None:
        return None
    return match_answer(response.answer, instance.reference_answer)


def match_accepted_answers(instance: Instance, response: Response) -> Label:
    """Return whether the answer matches the reference answer or an alias; None where either is missing."""
    if response.answer is None or not instance.accepted_answers:
        return None
    return match_any_answer(response.answer, instance.accepted_answers)


@dataclass(frozen=True, slots=True)
class JudgedCaseSet:
    """The cases of one or more runs, with the caveats of their rates."""

    cases: tuple[JudgedCase, ...]
    left_out: tuple[LeftOutResponse, ...] = ()
    """Responses without a case, with the reason."""
    rejected: RejectCounts = field(default_factory=dict)
    """Unused records of the input files."""
    stale: tuple[str, ...] = ()
    """One sentence for each file that changed since it was judged; only with ``allow_stale``."""
    checked: bool = True
    """Whether manifests name the files that were judged."""
    selected: tuple[str, ...] = ()
    """A sentence for each run of which only chosen responses were judged: its rates are not those of the run."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences that a command prints before any rate."""
        unchecked = () if self.checked else (UNCHECKED_CAVEAT,)
        return (*self.stale, *self.selected, *unchecked, *describe_rejects(self.rejected))


def describe_rejects(rejected: RejectCounts) -> tuple[str, ...]:
    """Return one sentence for each file with unused records: their number by reason."""
    return tuple(
        f"{name}: {sum(reasons.values()):,} not used"
        f" ({', '.join(f'{reason} {count:,}' for reason, count in sorted(reasons.items()))})."
        for name, reasons in rejected.items()
    )


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The questions and responses of a run's folder, each id once."""

    instances: Mapping[str, Instance]
    responses: tuple[Response, ...]
    left_out: tuple[LeftOutResponse, ...] = ()
    """Unusable responses, with the reason."""
    rejected: RejectCounts = field(default_factory=dict)


def read_run_records(run: Path, *, first_response: bool = False, vouched: Collection[str] = frozenset()) -> RunRecords:
    """Read the questions and responses of a run; raise RecordError where one id stands for two of either.

    Args:
        run: Folder of the run.
        first_response: Whether the first response of an id is used and later ones are left out, as judging does.
        vouched: Names of files that need not be checked again, as by ``list_vouched_files``.
    """
    instances, instance_rejects, _ = _read_unique(open_questions(run, vouched))
    responses, response_rejects, left_out = _read_unique(open_responses(run, vouched), first=first_response)
    return RunRecords(
        instances,
        tuple(responses.values()),
        (*left_out, *read_conversion_losses(run)),
        _drop_empty({INSTANCES_FILE: instance_rejects, RESPONSES_FILE: response_rejects}),
    )


def _read_unique(
    file: RecordFile[T], *, first: bool = False
) -> tuple[dict[str, T], Counter[str], list[LeftOutResponse]]:
    """Read records by id; return them, the counts of unused records, and those left out with the reason.

    A repeated record counts as a duplicate. Different records under one id raise RecordError unless ``first``, and so
    does a file without a readable record.
    """
    records = list(file.scan())
    ids = [file.id_of(value) for _, value in records]
    used = drop_repeats(file, hash_ids(ids), [position for position, _ in records], first=first)
    values = {id_: value for id_, (_, value), use in zip(ids, records, used.tolist(), strict=True) if use}
    return values, file.rejected, list(list_lost_records(file))


def drop_repeats(
    file: RecordFile[T], ids: NDArray[np.uint64], positions: Sequence[int], *, first: bool = False
) -> Flags:
    """Return which records of a file of a run are used; raise RecordError as ``_read_unique``."""
    used: Flags = file.drop_repeats(ids, positions, partial(describe_reused_id, file.path, file.kind), first=first)
    return used


def list_lost_records(file: RecordFile[T]) -> Iterator[LeftOutResponse]:
    """Yield the records of a file that are lost, with the reason; a duplicate is not."""
    for unused in file.unused:
        if unused.kind == ID_REUSED:
            yield file.id_of(file.read(unused.position)), REPEATED_ID
        elif unused.kind != DUPLICATE:
            yield f"{file.path.name} {unused.where}", describe_unreadable(unused.kind)


def open_questions(run: Path, vouched: Collection[str], part: type[Any] | None = None) -> RecordFile[Instance]:
    """Return the questions of a run; see ``RecordFile`` for the arguments."""
    path = run / INSTANCES_FILE
    return RecordFile(path, Instance, attrgetter("id"), vouched=path.name in vouched, part=part)


def open_responses(run: Path, vouched: Collection[str], part: type[Any] | None = None) -> RecordFile[Response]:
    """Return the responses of a run."""
    path = run / RESPONSES_FILE
    return RecordFile(path, Response, attrgetter("id"), vouched=path.name in vouched, part=part)


def open_judgments(run: Path, vouched: Collection[str], part: type[Any] | None = None) -> RecordFile[Judgment]:
    """Return the judgments of a run."""
    path = run / JUDGMENTS_FILE
    return RecordFile(path, Judgment, attrgetter("response_id"), vouched=path.name in vouched, part=part)


def describe_unreadable(kind: str) -> str:
    """Return the reason for a response whose record cannot be read."""
    return f"it cannot be read ({kind})"


def describe_reused_id(path: Path, kind: type[object], id_: str, first: str, second: str) -> RecordError:
    """Return the error for two different records under one id, at two locations of a file."""
    if kind is Judgment:
        problem = f"was judged twice, in {first} and {second}. Keep one judgment of each response."
        return RecordError(problem, path=path, record=f"response {id_}")
    response_remedy = "Give every response a unique id."
    noun, remedy = ("question", QUESTION_REMEDY) if kind is Instance else ("response", response_remedy)
    return RecordError(f"the id {id_!r} is another {noun}'s in {first}. {remedy}", path=path, record=second)


def _drop_empty(rejected: RejectCounts) -> dict[str, dict[str, int]]:
    return {name: dict(reasons) for name, reasons in rejected.items() if reasons}


def _read_earlier_rejects(run: Path) -> dict[str, Mapping[str, int]]:
    """Return the records that earlier steps did not use when they wrote the files of a run, by file and step."""
    counts: dict[str, Mapping[str, int]] = {}
    for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE):
        if not companion_file_path(run / name, "manifest.json").is_file():
            continue
        manifest = find_file_manifest(run / name)
        # A record with a question and its response counts once, with the responses.
        if manifest is not None and manifest.stage != "judge instances":
            counts[f"{name} ({manifest.stage})"] = {**manifest.counts.rejected, **manifest.counts.quarantined}
    return counts


def read_conversion_losses(run: Path) -> list[LeftOutResponse]:
    """Return the records of another tool's file that could not be converted into responses, with the reason.

    A response that was lost on the way may be a failure, so it counts as one without a judgment.
    """
    manifest = find_file_manifest(run / RESPONSES_FILE)
    if manifest is None or manifest.stage not in CONVERSION_STEPS:
        return []
    source = ", ".join(manifest.inputs)

    def read(kind: str) -> list[Mapping[str, str]] | None:
        path = companion_file_path(run / RESPONSES_FILE, kind)
        if path.name not in manifest.outputs or not path.is_file():
            return None
        return [raw.value or {} for raw in read_json_objects(path)]

    unreadable = [(f"{source} {row['where']}", "it cannot be read") for row in read("quarantined.jsonl") or ()]
    rejected = read("rejected.jsonl")
    if rejected is None:
        # Steps of earlier versions counted the rejected records and did not list them.
        losses = [(source, reason) for reason, count in manifest.counts.rejected.items() for _ in range(count)]
    else:
        # A run that grows has several sources, and names them with each record.
        losses = [(f"{source} {row['where']}".lstrip(), row["reason"]) for row in rejected]
    return [*unreadable, *(loss for loss in losses if not loss[1].startswith(_NO_LOSS_REASONS))]


def check_judged_inputs(run: Path, *, allow_stale: bool = False) -> ProvenanceCheck:
    """Compare the hashes in the judgments' manifest with the questions and responses in the same folder.

    Raises:
        UserError: The judgments were made from other files, and ``allow_stale`` is false.
    """
    inputs = (run / INSTANCES_FILE, run / RESPONSES_FILE)
    for path in inputs:
        require_regular_file(path)
    provenance = check_result_provenance(run / JUDGMENTS_FILE, inputs)
    remedy = f"Judge these responses (eclose judge {run} --judge MODEL)"
    return provenance.refuse_stale(run, remedy, allow_stale=allow_stale)


def is_settled_by_people(runs: Iterable[Path], judges: Collection[str]) -> bool:
    """Return whether people settled every judgment of the runs: by the name of the judge, or by a manifest.

    Args:
        runs: Folders of the runs.
        judges: Judges named in their judgments.
    """
    manifests = (find_file_manifest(run / JUDGMENTS_FILE) for run in runs)
    # The lead of a study may name the judge of an export as they like; its manifest says which name that is.
    names = {manifest.settings.get("judge") for manifest in manifests if manifest and manifest.stage in PEOPLE_STEPS}
    return bool(judges) and names.union([PEOPLE_JUDGE]).issuperset(judges)


def read_judged_cases(run: Path, *, allow_stale: bool = False) -> JudgedCaseSet:
    """Read the cases of a judged run.

    A run without a manifest, such as labels of another tool, is read without this check.

    Raises:
        UserError: ``run`` is no folder of a run, or the judgments were made from other questions or responses, and
            ``allow_stale`` is false. Where it is true, ``JudgedCaseSet.stale`` describes the change.
    """
    provenance = check_judged_run(run, allow_stale=allow_stale)
    # Judging takes the first response of a repeated id, so a judged run is read the same way.
    vouched = list_vouched_files(run, provenance)
    files = read_run_records(run, first_response=provenance.checked, vouched=vouched)
    judgments, judgment_rejects, _ = _read_unique(open_judgments(run, vouched))
    cases, left_out = join_cases(files.instances, files.responses, judgments)
    rejected = {**files.rejected, JUDGMENTS_FILE: judgment_rejects}
    return make_case_set(run, cases, (*left_out, *files.left_out), rejected, provenance)


def list_vouched_files(run: Path, provenance: ProvenanceCheck) -> frozenset[str]:
    """Return the files of a judged run whose records need no second check: judging read them without finding fault.

    Judging counts what it finds in responses alone, so questions also need the manifest of the step that wrote them.
    """
    manifest = find_file_manifest(run / JUDGMENTS_FILE)
    if not provenance.checked or provenance.stale or manifest is None or manifest.stage != "judge":
        return frozenset()
    if manifest.counts.rejected or manifest.counts.quarantined or RESPONSES_FILE not in manifest.inputs:
        return frozenset()
    questions, judged = find_file_manifest(run / INSTANCES_FILE), manifest.inputs.get(INSTANCES_FILE)
    written = judged is not None and questions is not None and questions.outputs.get(INSTANCES_FILE) == judged
    return frozenset({RESPONSES_FILE, JUDGMENTS_FILE, *((INSTANCES_FILE,) if written else ())})


def check_judged_run(run: Path, *, allow_stale: bool = False) -> ProvenanceCheck:
    """Check that a folder holds a judged run whose files belong together, before any record is read.

    Raises:
        UserError: As ``read_judged_cases``.
    """
    _require_run_folder(run)
    # Missing inputs are reported before missing judgments: without responses there is nothing to judge.
    for name in (INSTANCES_FILE, RESPONSES_FILE):
        require_regular_file(run / name)
    if not (run / JUDGMENTS_FILE).exists() or is_growing(run):
        raise UserError(_describe_unjudged(run))
    # Before anything is joined: ids alone would also join judgments of another version of the same responses.
    return check_judged_inputs(run, allow_stale=allow_stale)


def make_case_set(
    run: Path,
    cases: Iterable[JudgedCase],
    left_out: Iterable[LeftOutResponse],
    rejected: RejectCounts,
    provenance: ProvenanceCheck,
) -> JudgedCaseSet:
    """Return the cases of a run with its caveats; ``rejected`` counts the unused records of its three files."""
    return JudgedCaseSet(
        tuple(cases),
        tuple(left_out),
        _drop_empty({**rejected, **_read_earlier_rejects(run)}),
        provenance.stale,
        checked=provenance.checked,
        selected=_describe_selection(run / JUDGMENTS_FILE),
    )


def _require_run_folder(run: Path) -> None:
    """Raise unless the path is a folder with files of a run; the message names the command that makes one."""
    if run.is_file():
        if (run.parent / JUDGMENTS_FILE).exists():
            raise UserError(f"{run}: is a file of a judged run. Name its folder: {run.parent}")
        raise UserError(
            f"{run}: is a file, and the folder of a judged run is needed. Judge its responses first: "
            f"eclose judge {run} --judge MODEL --out RUN. Then use RUN here."
        )
    if not run.exists():
        raise UserError(f"{run}: there is no such folder. Check the path.")
    if run.is_dir() and not any((run / name).exists() for name in (INSTANCES_FILE, RESPONSES_FILE)):
        raise UserError(
            f"{run}: holds no run, there is no {INSTANCES_FILE} and no {RESPONSES_FILE}. Judge a file of responses "
            f"first: eclose judge FILE --judge MODEL --out {run}."
        )


def _describe_selection(judgments: Path) -> tuple[str, ...]:
    """Return a sentence where the manifest names a filter that chose the responses to judge; empty otherwise."""
    if (growth := read_growth(judgments.parent)) is not None:
        return describe_choice(growth.samples, growth.since)
    manifest = find_file_manifest(judgments)
    choice = manifest.settings.get("only") if manifest is not None else None
    if not isinstance(choice, Mapping):
        return ()
    if "bands" not in choice:
        return describe_choice((choice.get("sample", 1.0),), choice.get("since"))
    bands = ", ".join(map(str, choice["bands"]))
    return (f"A detector chose the responses that were judged ({bands}): the rates describe these alone.",)


def copy_unfinished_run(run: Path, folder: Path) -> tuple[Path, str] | None:
    """Return a run with the judgments that the ledger of an interrupted run has, and a sentence on those it has not.

    The copy is a folder of the same name in ``folder`` with links to the files of ``run``. None for other runs.
    """
    if not (run / RESPONSES_FILE).is_file() or ((run / JUDGMENTS_FILE).exists() and not is_growing(run)):
        return None
    if not (judgments := _read_unfinished_judgments(run)):
        return None
    copy = folder / run.resolve().name
    copy.mkdir(parents=True)
    for path in run.resolve().iterdir():
        # A validation is of the settings in the manifest, which an unfinished run does not have.
        if path.name not in (VALIDATION_FILE, GROWTH_FILE) and not path.name.startswith(JUDGMENTS_FILE):
            (copy / path.name).symlink_to(path)
    (copy / JUDGMENTS_FILE).write_bytes(b"".join(body + b"\n" for body in judgments))
    sentences = (
        f"UNFINISHED: {_describe_unjudged(run)} The others count as responses without a judgment.",
        *_describe_selection(run / JUDGMENTS_FILE),
    )
    return copy, " ".join(sentences)


def _describe_unjudged(run: Path) -> str:
    """Return the progress of a run without ``judgments.jsonl``, and the command that continues it."""
    total = sum(1 for _ in read_json_objects(run / RESPONSES_FILE))
    judged = len(_read_unfinished_judgments(run))
    command = f"eclose judge {run} --judge MODEL"
    if judged:
        return (
            f"{run}: {judged:,} of {total:,} responses are judged, and {JUDGMENTS_FILE} is written when all are."
            f" Run the same judge command again to continue: {command}."
        )
    return f"{run}: none of {total:,} responses is judged, there is no {JUDGMENTS_FILE}. Judge them first: {command}."


def read_judged_ids(run: Path) -> set[str]:
    """Return the ids of the responses that are judged so far."""
    if (run / JUDGMENTS_FILE).exists() and not is_growing(run):
        return {record.value.response_id for record in scan_records(run / JUDGMENTS_FILE, Judgment) if record.value}
    return {json.loads(line)["response_id"] for line in _read_unfinished_judgments(run)}


def _read_unfinished_judgments(run: Path) -> list[bytes]:
    """Return the judgments that a run has so far, as lines of JSON; empty without a readable ledger in its folder."""
    judgments, growth = _read_ledger_judgments(run), read_growth(run)
    if not judgments and growth is not None and (run / JUDGMENTS_FILE).is_file():
        # The ledger is elsewhere: those of before the last responses were taken.
        return (run / JUDGMENTS_FILE).read_bytes().splitlines()
    return judgments


def _read_ledger_judgments(run: Path) -> list[bytes]:
    ledger, growth = run / RUN_LEDGER_FILE, read_growth(run)
    if not ledger.is_file():
        return []
    # A ledger holds several runs where settings changed; the longest one is the best guess.
    bodies = (
        "SELECT body FROM ledger_outcomes WHERE stage = :stage AND kind = 'accepted' AND run = coalesce(:run, "
        "(SELECT run FROM ledger_outcomes WHERE stage = :stage GROUP BY run ORDER BY count(*) DESC LIMIT 1)) "
        "ORDER BY record_id"
    )
    named = {"stage": b"judge", "run": None if growth is None else growth.run_id.encode()}
    # Read-only and without a lock, because the run may be under way.
    try:
        connection = sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)
        try:
            # The ledger stores texts as bytes, compressed where they are long (see ``store.ledger.rows``).
            return [zlib.decompress(body) for (body,) in connection.execute(bodies, named)]
        finally:
            connection.close()
    except (sqlite3.Error, zlib.error):
        return []


def join_cases(
    instances: Mapping[str, Instance], responses: Iterable[Response], judgments: Mapping[str, Judgment]
) -> tuple[list[JudgedCase], list[LeftOutResponse]]:
    """Join questions, responses and judgments by id; return the cases, and responses without one with the reason."""
    cases, left_out = [], []
    ids: set[str] = set()
    for response in responses:
        instance, judgment = instances.get(response.instance_id), judgments.get(response.id)
        if response.id in ids:
            left_out.append((response.id, REPEATED_ID))
        elif instance is None:
            left_out.append((response.id, NO_QUESTION))
        elif judgment is None:
            left_out.append((response.id, NOT_JUDGED))
        else:
            cases.append(JudgedCase(instance, response, judgment))
        ids.add(response.id)
    return cases, left_out + [(id_, NO_RESPONSE) for id_ in judgments if id_ not in ids]


def describe_contained_run(name: str, other: str) -> str:
    """Return the message for a run of which every response is in another one."""
    return (
        f"every response of {name} is in {other} too, and would count twice. "
        "Leave one of them out, or compare the two with --against."
    )


def combine_caveats(sets: Mapping[str, JudgedCaseSet], *, repeated_ids: bool) -> JudgedCaseSet:
    """Return the caveats of several runs, by their names; repeated response ids get the name before them."""
    # All ids get a prefix, not only the repeated ones: mixed forms would be hard to look up.
    left_out = (
        (f"{name}/{id_}" if repeated_ids else id_, reason)
        for name, part in sets.items()
        for id_, reason in part.left_out
    )
    return JudgedCaseSet(
        (),
        tuple(left_out),
        {f"{name}/{file}": counts for name, part in sets.items() for file, counts in part.rejected.items()},
        tuple(f"{name}: {sentence}" for name, part in sets.items() for sentence in part.stale),
        checked=all(part.checked for part in sets.values()),
        selected=tuple(f"{name}: {sentence}" for name, part in sets.items() for sentence in part.selected),
    )


def name_run_folders(runs: Sequence[Path]) -> list[str]:
    """Return the names of the folders; their paths where two names are equal."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def prefix_response_id(name: str, case: JudgedCase) -> JudgedCase:
    """Return a case with the name of its run before the response id."""
    id_ = f"{name}/{case.response.id}"
    return replace(case, response=replace(case.response, id=id_), judgment=replace(case.judgment, response_id=id_))


def refuse_reused_question_ids(*runs: Iterable[JudgedCase]) -> None:
    """Raise UserError where one id stands for different questions in different runs."""
    questions: dict[tuple[str | None, str], Instance] = {}
    for case in chain(*runs):
        instance = case.instance
        # Ids are unique within a benchmark only.
        first = questions.setdefault((instance.benchmark, instance.id), instance)
        if first.question != instance.question:
            raise UserError(describe_reused_question(first, instance))


def describe_reused_question(first: Instance, second: Instance) -> str:
    """Return the message for two questions with one id."""
    return (
        f"question {second.id} is {first.question!r} in one run and {second.question!r} in another. "
        "Runs can be combined only where the same id is the same question."
    )
