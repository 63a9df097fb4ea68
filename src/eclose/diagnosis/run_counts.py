"""Labels of judged runs, with the responses that a report shows: all of a small run, a sample of a large one.

The records of a run are read once for their labels; the texts of responses that are shown are read by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from eclose.core.identity import canonical_bytes
from eclose.core.instance import Instance
from eclose.core.judgment import Criterion, Judgment, StepJudgment
from eclose.core.response import Response, Trace
from eclose.diagnosis.compare import QuestionKey, name_outcome
from eclose.diagnosis.label_table import (
    JudgmentColumns,
    JudgmentPart,
    LabelTable,
    QuestionPart,
    ResponseColumns,
    ResponsePart,
)
from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.errors import SettingError, UserError
from eclose.judged_cases import (
    NAMED_TWICE,
    NO_QUESTION,
    NO_RESPONSE,
    NOT_JUDGED,
    JudgedCase,
    JudgedCaseSet,
    check_judged_run,
    combine_case_sets,
    describe_contained_run,
    describe_reused_question,
    drop_repeats,
    list_lost_records,
    list_vouched_files,
    make_case_set,
    name_run_folders,
    open_judgments,
    open_questions,
    open_responses,
    prefix_response_id,
    read_conversion_losses,
)
from eclose.metrics.rates import VERDICTS
from eclose.stats.arrays import Indices
from eclose.store.records.json_reader import is_plain_json_lines
from eclose.store.records.seen_ids import hash64
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.parts import get_remote_url, is_in_parts
from eclose.store.runs.record_file import hash_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from eclose.calls.ray.workers import RaySettings
    from eclose.core.three_valued import Label
    from eclose.judged_cases import LeftOutResponse
    from eclose.stats.arrays import Flags

LARGE_RUN = 100_000
"""Responses above which a report shows a sample."""
SAMPLE_SIZE = 5_000
"""Responses of a large run that a report shows."""
_RUN_FILES = (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)


class QuestionHashes(NamedTuple):
    """Hashes of the text of a question and of its passages."""

    text: int
    passages: int

    @classmethod
    def of(cls, instance: Instance) -> QuestionHashes:
        """Return the hashes of a question."""
        passages = [[passage.id, passage.title, passage.text] for passage in instance.evidence]
        return cls(hash64(canonical_bytes(instance.question)), hash64(canonical_bytes(passages)))


class RunSource(Protocol):
    """The records of a run whose labels were read, by their positions in its table."""

    def read_cases(self, positions: Indices) -> Iterable[JudgedCase]:
        """Return whole cases, in the order of their positions."""

    def read_ids(self, positions: Indices) -> Iterable[str]:
        """Return the ids of responses."""

    def hash_questions(self, positions: Indices) -> Iterable[QuestionHashes]:
        """Return the hashes of the questions of responses."""


class LabelledRun(NamedTuple):
    """The labels of one run, where its records are, and the caveats of its rates."""

    labels: LabelTable
    source: RunSource
    caveats: JudgedCaseSet
    """Without cases."""


@dataclass(frozen=True)
class RunCounts:
    """Labels of one or more judged runs."""

    runs: Mapping[str, LabelledRun]
    """The runs by their names."""
    shown: Indices
    """Rows of the responses that a report shows."""
    repeated_ids: bool = False
    """Whether two runs have a response id in common, so that the name of the run is put before every id."""

    @classmethod
    def of(cls, cases: Sequence[JudgedCase]) -> RunCounts:
        """Return the counts of cases."""
        run = LabelledRun(LabelTable.of(cases), _HeldCases(cases), JudgedCaseSet(()))
        return cls({"": run}, np.arange(len(cases)))

    @cached_property
    def labels(self) -> LabelTable:
        """The labels of all runs."""
        return LabelTable.concatenate([run.labels for run in self.runs.values()])

    @cached_property
    def caveats(self) -> JudgedCaseSet:
        """The caveats of the rates, without the cases."""
        return self._combine({name: run.caveats for name, run in self.runs.items()})

    @cached_property
    def case_set(self) -> JudgedCaseSet:
        """The responses that a report shows, and the caveats of the rates."""
        return replace(self.caveats, cases=tuple(self.read_cases(self.shown)))

    @property
    def sampled(self) -> bool:
        """Whether responses were counted that are not shown."""
        return len(self.labels) > len(self.shown)

    @property
    def labelled(self) -> Sequence[JudgedCase]:
        """Every counted response with its labels; without its texts where not all responses are shown."""
        return tuple(self._list_labels()) if self.sampled else self.case_set.cases

    def read_cases(self, rows: Indices) -> Iterator[JudgedCase]:
        """Yield the whole cases of some responses."""
        for name, run, own in self._divide(rows):
            cases = run.source.read_cases(run.labels.positions[own])
            yield from (prefix_response_id(name, case) for case in cases) if self.repeated_ids else cases

    def list_questions(self) -> Iterator[tuple[QuestionKey, QuestionHashes, int]]:
        """Yield key and hashes of the questions of each run, and a row that answers them."""
        start = 0
        for run in self.runs.values():
            labels = run.labels
            # Questions are numbered in the order of their first responses.
            _, rows = np.unique(labels.question, return_index=True)
            hashes = run.source.hash_questions(labels.positions[rows])
            yield from zip(labels.questions, hashes, (start + rows).tolist(), strict=True)
            start += len(labels)

    def _divide(self, rows: Indices) -> Iterator[tuple[str, LabelledRun, Indices]]:
        """Yield each run with its name and its own rows among some rows of all runs."""
        start = 0
        for name, run in self.runs.items():
            yield name, run, rows[(rows >= start) & (rows < start + len(run.labels))] - start
            start += len(run.labels)

    def _combine(self, sets: Mapping[str, JudgedCaseSet]) -> JudgedCaseSet:
        if len(sets) == 1:
            return next(iter(sets.values()))
        return combine_case_sets(sets, repeated_ids=self.repeated_ids)

    def _list_labels(self) -> Iterator[JudgedCase]:
        for name, run, rows in self._divide(np.arange(len(self.labels))):
            labels = run.labels
            ids = run.source.read_ids(labels.positions)
            for id_, row in zip(ids, rows.tolist(), strict=True):
                case = _without_texts(id_, labels, row)
                yield prefix_response_id(name, case) if self.repeated_ids else case


_NO_ENTRIES: dict[Criterion, str] = {}
_NO_VOTES: dict[str, tuple[Label, ...]] = {}
_ONE_STEP = {label: (StepJudgment(True, label),) for label in (True, False, None)}


def _without_texts(id_: str, labels: LabelTable, row: int) -> JudgedCase:
    """Return a case with the five labels of a response and nothing else; equal parts are shared."""
    verdict = VERDICTS[labels.verdict[row]]
    benchmark, question = labels.questions[labels.question[row]]
    judgment = Judgment(
        id_,
        labels.judges[labels.judge[row]],
        _ONE_STEP[verdict.locally_sound],
        aligned=verdict.aligned,
        closed=verdict.closed,
        complete=verdict.complete,
        correct=verdict.correct,
        unjudged=_NO_ENTRIES,
        reasons=_NO_ENTRIES,
        votes=_NO_VOTES,
    )
    return JudgedCase(
        Instance(question, "", (), benchmark=benchmark), Response(id_, question, Trace(()), None), judgment
    )


def is_large_run(run: Path) -> bool:
    """Return whether a run has more than ``LARGE_RUN`` responses in JSON Lines, or is in parts."""
    if is_in_parts(run):
        return True
    files = [run / name for name in _RUN_FILES]
    if not all(path.is_file() and is_plain_json_lines(path) for path in files):
        return False
    # Lines are counted, not parsed; a blank line more or less does not matter at this size.
    with files[1].open("rb") as file:
        blocks = iter(partial(file.read, 2**20), b"")
        lines = 0
        for block in blocks:
            lines += block.count(b"\n")
            if lines > LARGE_RUN:
                return True
    return False


def count_runs(
    runs: Sequence[Path | str],
    *,
    allow_stale: bool = False,
    large: bool = False,
    ray: RaySettings | None = None,
) -> RunCounts:
    """Read the labels of judged runs together, and choose the responses to show.

    Where two runs use the same response id, the name of the run is put before every id.

    Args:
        runs: Folders of judged runs, or runs in parts.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        large: Whether a sample of the responses is shown.
        ray: Ray workers that read runs in parts; this process reads them without.

    Raises:
        SettingError: A run is named twice, or a run that is not in parts is to be read on Ray.
        UserError: All responses of one run are in another one, so that they would count twice; or one id stands for
            two questions; or the conditions of ``read_judged_cases``.
    """
    if len({str(get_remote_url(run) or Path(run).resolve()) for run in runs}) < len(runs):
        raise SettingError(NAMED_TWICE)
    names = name_run_folders([Path(run) for run in runs])
    parts = {name: _read_run(run, allow_stale=allow_stale, ray=ray) for name, run in zip(names, runs, strict=True)}
    refuse_shared_responses(parts, large=large)
    ids = np.concatenate([run.labels.ids for run in parts.values()])
    counts = RunCounts(parts, np.arange(len(ids)), repeated_ids=len(parts) > 1 and len(np.unique(ids)) < len(ids))
    return replace(counts, shown=_sample(counts.labels)) if large and len(ids) > SAMPLE_SIZE else counts


def _sample(labels: LabelTable) -> Indices:
    """Return the rows of a sample of responses."""
    models, model = labels.group_by_model()
    benchmarks, benchmark = labels.group_by_benchmark()
    outcomes = [name_outcome(verdict) for verdict in VERDICTS]
    names = sorted(set(outcomes))
    outcome = np.array([names.index(name) for name in outcomes])[labels.verdict]
    groups, stratum = np.unique((outcome * len(benchmarks) + benchmark) * len(models) + model, return_inverse=True)
    strata = [
        ResponseStratum(names[pair // len(benchmarks)], benchmarks[pair % len(benchmarks)], models[number])
        for pair, number in (divmod(group, len(models)) for group in groups.tolist())
    ]
    return choose_responses(strata, stratum, labels.ids, SAMPLE_SIZE)


def refuse_shared_responses(runs: Mapping[str, LabelledRun], *, large: bool) -> None:
    """Raise UserError where all responses of a run are in another one, or where one id stands for two questions."""
    # In both orders, since either run may be a part of the other.
    for (name, run), (other_name, other) in permutations(runs.items(), 2):
        if _is_contained(run, other, with_questions=large):
            raise UserError(describe_contained_run(name, other_name))
    counts = [RunCounts({name: run}, np.arange(len(run.labels))) for name, run in runs.items()]
    if not large:
        refuse_reused_questions(*counts)
        return
    for one, other_counts in combinations(counts, 2):
        compare_questions(one, other_counts, "combined")


def _is_contained(run: LabelledRun, other: LabelledRun, *, with_questions: bool) -> bool:
    """Return whether every response of a run, and its question where asked for, is in another one."""
    _, rows, other_rows = np.intersect1d(run.labels.ids, other.labels.ids, assume_unique=True, return_indices=True)
    if len(rows) < len(run.labels) or not len(rows):
        return False
    # Different systems may use the same ids, so the responses themselves decide; the first difference ends it.
    order = np.argsort(rows)
    pairs = zip(
        run.source.read_cases(run.labels.positions[rows[order]]),
        other.source.read_cases(other.labels.positions[other_rows[order]]),
        strict=True,
    )
    return all(
        own.response == others.response and (not with_questions or own.instance == others.instance)
        for own, others in pairs
    )


def refuse_reused_questions(*runs: RunCounts) -> None:
    """Raise UserError where one id stands for two questions; the message has both texts."""
    if (found := _find_reused_question(*runs)) is not None:
        first, second = (next(run.read_cases(np.array([row]))).instance for run, row in found)
        raise UserError(describe_reused_question(first, second))


def _find_reused_question(*runs: RunCounts) -> tuple[tuple[RunCounts, int], tuple[RunCounts, int]] | None:
    """Return the first two responses to different questions with one id; None where there are none."""
    # A single run has every question once.
    if sum(len(run.runs) for run in runs) < 2:
        return None
    seen: dict[QuestionKey, tuple[int, RunCounts, int]] = {}
    for run in runs:
        for key, hashes, row in run.list_questions():
            text, first_run, first_row = seen.setdefault(key, (hashes.text, run, row))
            if text != hashes.text:
                return (first_run, first_row), (run, row)
    return None


def compare_questions(run: RunCounts, base: RunCounts, use: str = "compared") -> int:
    """Return the number of shared questions with other passages in the base run.

    Args:
        run: A run.
        base: The other run.
        use: What is done with the runs, for the message.

    Raises:
        UserError: One id stands for different questions in the two runs.
    """
    known: dict[QuestionKey, QuestionHashes] = {}
    for key, hashes, _ in base.list_questions():
        known.setdefault(key, hashes)
    differing, compared = 0, set()
    for key, hashes, _ in run.list_questions():
        if key in compared or key not in known:
            continue
        compared.add(key)
        if hashes.text != known[key].text:
            raise UserError(
                f"question {key[1]} has another text in the {'base' if use == 'compared' else 'other'} run. "
                f"Runs can be {use} only where the same id is the same question."
            )
        differing += hashes.passages != known[key].passages
    return differing


def _read_run(run: Path | str, *, allow_stale: bool, ray: RaySettings | None) -> LabelledRun:
    if is_in_parts(run):
        from eclose.diagnosis.run_parts import read_run_in_parts  # noqa: PLC0415 - rarely needed

        return read_run_in_parts(run, allow_stale=allow_stale, ray=ray)
    if ray is not None:
        raise SettingError(f"{run}: workers count runs in parts. Write it in parts first: eclose data split {run} OUT.")
    return read_run_files(Path(run), allow_stale=allow_stale)


def read_run_files(run: Path, *, allow_stale: bool = False) -> LabelledRun:
    """Read the labels of a run in three files; the conditions are those of ``read_judged_cases``."""
    provenance = check_judged_run(run, allow_stale=allow_stale)
    files = _RunFiles(run, list_vouched_files(run, provenance))
    questions = files.read_questions()
    # Judging takes the first response of a repeated id, so a judged run is read the same way.
    responses, answered = files.read_responses(questions, first=provenance.checked)
    judgments, judged = files.read_judgments()
    response_ids, judgment_ids = np.array(responses.ids, np.uint64), np.array(judgments.ids, np.uint64)
    partner = _find_rows(response_ids, judgment_ids, np.flatnonzero(judged))
    known = np.array(responses.question, np.intp) >= 0
    joined = known & (partner >= 0)
    rows = np.flatnonzero(answered & joined)
    labels = LabelTable.join(responses, judgments, rows, partner[rows], questions.keys, questions.positions)
    lost = np.flatnonzero(answered & ~joined)
    unknown = np.flatnonzero(judged & ~np.isin(judgment_ids, response_ids[answered]))
    left_out: Iterable[LeftOutResponse] = chain(
        zip(
            files.read_response_ids(np.array(responses.position, np.int64)[lost]),
            (NOT_JUDGED if has_question else NO_QUESTION for has_question in known[lost].tolist()),
            strict=True,
        ),
        (
            (judgment.response_id, NO_RESPONSE)
            for judgment in files.judgments.read_several(np.array(judgments.position, np.int64)[unknown].tolist())
        ),
        list_lost_records(files.responses),
        read_conversion_losses(run),
    )
    return LabelledRun(labels, files, make_case_set(run, (), left_out, files.rejected, provenance))


def _find_rows(ids: NDArray[np.uint64], others: NDArray[np.uint64], rows: Indices) -> Indices:
    """Return for each id the one among some rows of others that has it; -1 where none has."""
    if not len(rows):
        return np.full(len(ids), -1, np.intp)
    ordered = rows[np.argsort(others[rows])]
    found = ordered[np.minimum(np.searchsorted(others[ordered], ids), len(ordered) - 1)]
    return np.where(others[found] == ids, found, -1)


class _Questions(NamedTuple):
    """The questions of a file, by number."""

    keys: list[QuestionKey]
    parts: list[QuestionPart]
    positions: list[int]
    numbers: dict[str, int]
    """Number of the question of each id."""


class _RunFiles:
    """The three files of a run; positions are those of question, response and judgment in their files."""

    def __init__(self, run: Path, vouched: frozenset[str]) -> None:
        self.questions = open_questions(run, vouched, QuestionPart)
        self.responses = open_responses(run, vouched, ResponsePart)
        self.judgments = open_judgments(run, vouched, JudgmentPart)

    def read_questions(self) -> _Questions:
        """Return the questions, without their texts."""
        parts, positions = [], []
        for position, question in self.questions.scan():
            parts.append(QuestionPart(question.id, question.reference_answer, question.aliases, question.benchmark))
            positions.append(position)
        used = drop_repeats(self.questions, hash_ids([part.id for part in parts]), positions)
        numbers = {parts[number].id: number for number in np.flatnonzero(used).tolist()}
        return _Questions([(part.benchmark, part.id) for part in parts], parts, positions, numbers)

    def read_responses(self, questions: _Questions, *, first: bool) -> tuple[ResponseColumns, Flags]:
        """Return the columns of all responses that can be read, and which of them are used."""
        columns = ResponseColumns()
        for position, response in self.responses.scan():
            number = questions.numbers.get(response.instance_id, -1)
            columns.add(response, number, None if number < 0 else questions.parts[number], position)
        ids = np.array(columns.ids, np.uint64)
        return columns, drop_repeats(self.responses, ids, columns.position, first=first)

    def read_judgments(self) -> tuple[JudgmentColumns, Flags]:
        """Return the columns of all judgments that can be read, and which of them are used."""
        columns = JudgmentColumns()
        for position, judgment in self.judgments.scan():
            columns.add(judgment, position)
        return columns, drop_repeats(self.judgments, np.array(columns.ids, np.uint64), columns.position)

    @property
    def rejected(self) -> dict[str, dict[str, int]]:
        """Number of unused records, by file and reason."""
        return {file.path.name: dict(file.rejected) for file in (self.questions, self.responses, self.judgments)}

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        """Yield whole cases, in the order of their positions."""
        questions, responses, judgments = positions.T.tolist()
        # Responses to one question often follow each other.
        distinct = [place for number, place in enumerate(questions) if not number or place != questions[number - 1]]
        instances = zip(distinct, self.questions.read_several(distinct), strict=True)
        place = instance = None
        for question, response, judgment in zip(
            questions, self.responses.read_several(responses), self.judgments.read_several(judgments), strict=True
        ):
            if place != question:
                place, instance = next(instances)
            assert instance is not None
            yield JudgedCase(instance, response, judgment)

    def read_ids(self, positions: Indices) -> Iterator[str]:
        """Yield the ids of responses."""
        return self.read_response_ids(positions[:, 1])

    def read_response_ids(self, positions: Indices) -> Iterator[str]:
        """Yield the ids of responses by their positions in their file."""
        return (response.id for response in self.responses.read_several(positions.tolist()))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        """Yield the hashes of the questions of responses."""
        return map(QuestionHashes.of, self.questions.read_several(positions[:, 0].tolist()))


class _HeldCases:
    """Cases in memory, by their positions."""

    def __init__(self, cases: Sequence[JudgedCase]) -> None:
        self._cases = cases

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        return (self._cases[number] for number in positions[:, 1].tolist())

    def read_ids(self, positions: Indices) -> Iterator[str]:
        return (case.response.id for case in self.read_cases(positions))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        return (QuestionHashes.of(case.instance) for case in self.read_cases(positions))


def split_run(run: Path | str, out: Path | str, *, rows: int | None = None, allow_stale: bool = False) -> int:
    """Write a judged run in Parquet parts, which ``diagnose`` and ``gate`` read as they read the folder of a run.

    Args:
        run: Folder of a judged run in JSON Lines.
        out: New folder, or an address in object storage: ``s3://bucket/path``, ``gs://`` or ``abfss://``.
        rows: Responses of a part, 50,000 by default.
        allow_stale: Use judgments although questions or responses changed after they were judged.

    Returns:
        The number of parts.

    Raises:
        UserError: The folder holds no judged run, or judgments of other responses; or ``out`` holds parts already.

    Examples:
        >>> eclose.split_run("demo", "demo-parts", rows=20)
        3
    """
    from eclose.diagnosis.run_parts import PART_ROWS, refuse_used_folder, write_parts  # noqa: PLC0415

    part_rows = PART_ROWS if rows is None else rows
    refuse_used_folder(out, part_rows)
    counted = read_run_files(Path(run), allow_stale=allow_stale)
    return len(write_parts(out, counted, part_rows).parts)
