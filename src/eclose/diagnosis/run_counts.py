"""Counts of judged runs, with the responses that a report shows: all of a small run, a sample of a large one.

A run with more than ``LARGE_RUN`` responses is read in one pass. Its files are joined through an index on disk, so
memory grows with its questions and not with its responses.
"""

from __future__ import annotations

import marshal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eclose.core.identity import canonical_bytes
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.diagnosis.counts import CountedResponse, DiagnosisCounts, JudgmentFacts, count_cases
from eclose.diagnosis.pair_responses import ResponseHashes
from eclose.diagnosis.response_counter import ResponseCounter, ResponsePosition, ResponseSample
from eclose.errors import SettingError, UserError
from eclose.judged_cases import (
    NAMED_TWICE,
    NO_QUESTION,
    NO_RESPONSE,
    NOT_JUDGED,
    REPEATED_ID,
    JudgedCase,
    JudgedCaseSet,
    check_judged_run,
    combine_case_sets,
    describe_contained_run,
    describe_reused_id,
    describe_unreadable,
    make_case_set,
    name_run_folders,
    prefix_response_id,
    read_cases_of_runs,
    read_conversion_losses,
    read_judged_cases,
)
from eclose.store.records.indexed import RecordIndex, UniqueScan
from eclose.store.records.json_reader import is_plain_json_lines
from eclose.store.records.jsonl import ID_REUSED
from eclose.store.records.seen_ids import hash64
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.parts import get_remote_url, is_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eclose.calls.ray.workers import RaySettings
    from eclose.judged_cases import LeftOutResponse
    from eclose.store.runs.verify_files import ProvenanceCheck

LARGE_RUN = 100_000
"""Responses above which a run is counted without being held in memory, which takes about 12 kB for each."""
SAMPLE_SIZE = 5_000
"""Responses of a large run that a report shows."""
_RUN_FILES = (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of one or more judged runs."""

    counts: DiagnosisCounts
    case_set: JudgedCaseSet
    """The responses that a report shows, and the caveats of the rates."""
    labels: tuple[JudgedCase, ...] = ()
    """Every counted response with its labels and without its texts, where they were asked for."""
    hashes: ResponseHashes | None = None
    """Hashes of the responses, where they were asked for and no id is repeated."""

    @property
    def sampled(self) -> bool:
        """Whether responses were counted that are not shown."""
        return len(self.counts) > len(self.case_set.cases)

    @property
    def labelled(self) -> tuple[JudgedCase, ...]:
        """Every counted response with its labels; of a large run only where they were asked for."""
        return self.labels if self.sampled else self.case_set.cases


def count_runs(
    runs: Sequence[Path],
    *,
    allow_stale: bool = False,
    large: bool = False,
    keep_labels: bool = False,
    keep_hashes: bool = False,
    ray: RaySettings | None = None,
) -> RunCounts:
    """Count judged runs together; the conditions and errors are those of ``read_cases_of_runs``.

    Args:
        runs: Folders of judged runs.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        large: Count the runs without holding them in memory.
        keep_labels: Whether the labels of every response of a large run are needed; they take 0.5 kB a response.
        keep_hashes: Whether responses of a large run are paired with another run, which takes 33 bytes a response.
        ray: Ray workers that count runs in parts.
    """
    if large or ray is not None:
        return count_large_runs(
            runs, allow_stale=allow_stale, keep_labels=keep_labels, keep_hashes=keep_hashes, ray=ray
        )
    case_set = read_cases_of_runs(runs, allow_stale=allow_stale)
    return RunCounts(count_cases(case_set.cases), case_set)


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


def count_large_run(
    run: Path | str, *, allow_stale: bool = False, sample_size: int | None = None, keep_labels: bool = False
) -> RunCounts:
    """Count a judged run, in JSON Lines or in parts, in one pass, and choose a sample of its responses."""
    return count_large_runs([run], allow_stale=allow_stale, sample_size=sample_size, keep_labels=keep_labels)


def count_large_runs(
    runs: Sequence[Path | str],
    *,
    allow_stale: bool = False,
    sample_size: int | None = None,
    keep_labels: bool = False,
    keep_hashes: bool = False,
    ray: RaySettings | None = None,
) -> RunCounts:
    """Count judged runs together, each in one pass, and choose a sample of their responses.

    Args:
        runs: Folders of runs, or runs in parts.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        sample_size: Responses of the sample, ``SAMPLE_SIZE`` by default.
        keep_labels: Whether the labels of every response are needed.
        keep_hashes: Whether hashes of every response are needed, to pair them with those of another run.
        ray: Ray workers that count the parts; this process counts them without.

    Raises:
        SettingError: A run is named twice, or a run that is not in parts is to be counted on Ray.
        UserError: The conditions of ``read_cases_of_runs``.
    """
    if len({str(get_remote_url(run) or Path(run).resolve()) for run in runs}) < len(runs):
        raise SettingError(NAMED_TWICE)
    size = SAMPLE_SIZE if sample_size is None else sample_size
    # Hashes of several runs are compared, since a response that is in two of them would count twice.
    new_counter = partial(ResponseCounter, size, keep_labels=keep_labels, keep_hashes=keep_hashes or len(runs) > 1)
    with ExitStack() as stack:
        sources = [_open_run(run, stack, allow_stale=allow_stale, ray=ray) for run in runs]
        counters = [source.count(new_counter) for source in sources]
        positions = _choose_positions(counters, size)
        sets = [source.read_cases(chosen) for source, chosen in zip(sources, positions, strict=True)]
    counts = reduce(DiagnosisCounts.merge, (counter.counts for counter in counters))
    labels = [counter.labels for counter in counters]
    if len(runs) == 1:
        return RunCounts(counts, sets[0], tuple(labels[0]), counters[0].hashes)
    names = name_run_folders([Path(run) for run in runs])
    _refuse_shared_responses(dict(zip(names, counters, strict=True)))
    hashes = ResponseHashes()
    for counter in counters:
        if counter.hashes is not None:
            hashes.include(counter.hashes)
    repeated = len(np.unique(np.array(hashes.ids, np.uint64))) < len(hashes.ids)
    if repeated:
        labels = [[prefix_response_id(name, case) for case in part] for name, part in zip(names, labels, strict=True)]
    case_set = combine_case_sets(dict(zip(names, sets, strict=True)), repeated_ids=repeated)
    # With the name of the run before it, an id is that of no response of another run.
    return RunCounts(counts, case_set, tuple(chain.from_iterable(labels)), None if repeated else hashes)


def _choose_positions(counters: Sequence[ResponseCounter], size: int) -> list[list[ResponsePosition]]:
    """Return the positions of a sample of several runs, for each run."""
    sample = ResponseSample(size)
    for number, counter in enumerate(counters):
        sample.include(counter.sample, prefix=(number,))
    positions: list[list[ResponsePosition]] = [[] for _ in counters]
    for (number, *position), _ in sample.choose():
        positions[number].append(tuple(position))
    return positions


def _refuse_shared_responses(counters: Mapping[str, ResponseCounter]) -> None:
    """Raise UserError where all responses of a run are in another one, or where one id stands for two questions.

    Responses are the same where all that was counted of them apart from their judgments is the same.
    """
    hashes = {
        name: np.unique(np.array(counter.hashes.facts if counter.hashes else [], np.uint64))
        for name, counter in counters.items()
    }
    for name, other in permutations(counters, 2):
        if len(hashes[name]) and np.isin(hashes[name], hashes[other], assume_unique=True).all():
            raise UserError(describe_contained_run(name, other))
    for name, other in combinations(counters, 2):
        compare_questions(counters[name].counts, counters[other].counts, "combined")


class _CountableRun(Protocol):
    """A run that is counted in one pass, and read at some positions afterwards."""

    def count(self, new_counter: Callable[[], ResponseCounter]) -> ResponseCounter:
        """Count all responses; positions are those that ``read_cases`` takes."""

    def read_cases(self, positions: Sequence[ResponsePosition]) -> JudgedCaseSet:
        """Return the cases at some positions, with the caveats of the run."""


def _open_run(run: Path | str, stack: ExitStack, *, allow_stale: bool, ray: RaySettings | None) -> _CountableRun:
    if is_in_parts(run):
        from eclose.diagnosis.run_parts import RunInParts  # noqa: PLC0415 - rarely needed

        return RunInParts(run, allow_stale=allow_stale, ray=ray)
    run = Path(run)
    if ray is not None:
        raise SettingError(f"{run}: workers count runs in parts. Write it in parts first: eclose data split {run} OUT.")
    if all(is_plain_json_lines(run / name) for name in _RUN_FILES if (run / name).is_file()):
        provenance = check_judged_run(run, allow_stale=allow_stale)
        return _RunFiles(stack.enter_context(RecordIndex()), run, provenance)
    return _RunInMemory(read_judged_cases(run, allow_stale=allow_stale))


class _RunInMemory:
    """A run in another format than JSON Lines, which cannot be read line by line."""

    def __init__(self, case_set: JudgedCaseSet) -> None:
        self._case_set = case_set

    def count(self, new_counter: Callable[[], ResponseCounter]) -> ResponseCounter:
        counter = new_counter()
        for position, case in enumerate(self._case_set.cases):
            facts = JudgmentFacts.of(case.judgment)
            counter.add(
                CountedResponse.join(case.instance, case.response, facts, hash_question(case.instance)), (position,)
            )
        return counter

    def read_cases(self, positions: Sequence[ResponsePosition]) -> JudgedCaseSet:
        return replace(self._case_set, cases=tuple(self._case_set.cases[position] for (position,) in positions))


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
    from eclose.diagnosis.run_parts import PART_ROWS, ResponseRow, refuse_used_folder, write_parts  # noqa: PLC0415

    part_rows = PART_ROWS if rows is None else rows
    refuse_used_folder(out, part_rows)
    run = Path(run)
    with RecordIndex() as index:
        files = _RunFiles(index, run, check_judged_run(run, allow_stale=allow_stale))
        responses = (ResponseRow(facts, *files.read_texts(facts, offset)) for facts, offset in files.join())
        return len(write_parts(out, responses, lambda: files.make_case_set(()), part_rows).parts)


def compare_questions(run: DiagnosisCounts, base: DiagnosisCounts, use: str = "compared") -> int:
    """Return the number of shared questions with other passages in the base run, by their hashes.

    Args:
        run: Counts of a run.
        base: Counts of the other run.
        use: What is done with the runs, for the message.

    Raises:
        UserError: One id stands for different questions in the two runs.
    """
    hashes = dict(zip(base.question_keys(), base.question_hashes(), strict=True))
    differing = 0
    for key, (text, passages) in zip(run.question_keys(), run.question_hashes(), strict=True):
        base_text, base_passages = hashes.get(key, (text, passages))
        if text != base_text:
            raise UserError(
                f"question {key[1]} has another text in the {'base' if use == 'compared' else 'other'} run. "
                f"Runs can be {use} only where the same id is the same question."
            )
        differing += passages != base_passages
    return differing


class _RunFiles:
    """The three files of a run, joined by id through an index on disk."""

    def __init__(self, index: RecordIndex, run: Path, provenance: ProvenanceCheck) -> None:
        self._index, self._run, self._provenance = index, run, provenance
        self._left_out: list[LeftOutResponse] = []

        self.instances = UniqueScan(
            index,
            run / INSTANCES_FILE,
            Instance,
            lambda instance: instance.id,
            data_of=_instance_bytes,
            reused=partial(describe_reused_id, run / INSTANCES_FILE, Instance),
        )
        self.judgments = UniqueScan(
            index,
            run / JUDGMENTS_FILE,
            Judgment,
            lambda judgment: judgment.response_id,
            data_of=lambda judgment: JudgmentFacts.of(judgment).to_bytes(),
            reused=partial(describe_reused_id, run / JUDGMENTS_FILE, Judgment),
        )
        self.responses = UniqueScan(
            index,
            run / RESPONSES_FILE,
            Response,
            lambda response: response.id,
            first=provenance.checked,
            reused=partial(describe_reused_id, run / RESPONSES_FILE, Response),
        )
        # Both are indexed whole before the first response is read, since their order may be another.
        for _ in chain[object](self.instances, self.judgments):
            pass
        # Responses to one question often follow each other, and else come in rounds over all questions.
        self.find_question = lru_cache(2**14)(self._find_question)

    def join(self) -> Iterator[tuple[CountedResponse, int]]:
        """Yield the facts of every judged response with the offset of its record; iterate once."""
        for response, offset in self.responses:
            question, judgment = self.find_question(response.instance_id), self.judgments.get(response.id)
            if question is None:
                self._left_out.append((response.id, NO_QUESTION))
            elif judgment is None:
                self._left_out.append((response.id, NOT_JUDGED))
            else:
                instance, hashes = question
                yield CountedResponse.join(instance, response, JudgmentFacts.from_bytes(judgment.data), hashes), offset

    def count(self, new_counter: Callable[[], ResponseCounter]) -> ResponseCounter:
        """Count all responses; their positions are the offsets of their records."""
        counter = new_counter()
        for facts, offset in self.join():
            counter.add(facts, (offset,))
        return counter

    def read_cases(self, positions: Sequence[ResponsePosition]) -> JudgedCaseSet:
        """Return the cases at some positions with the caveats of the run, after all responses were read."""
        return self.make_case_set([self.read_case(offset) for (offset,) in positions])

    def make_case_set(self, cases: Sequence[JudgedCase]) -> JudgedCaseSet:
        """Return cases with the caveats of the run, after all responses were read."""
        unknown = ((id_, NO_RESPONSE) for id_ in self._index.ids_without_partner("judgment", "response"))
        lost = chain(self._left_out, unknown, self._list_lost_responses(), read_conversion_losses(self._run))
        return make_case_set(self._run, cases, lost, self._rejected, self._provenance)

    def read_texts(self, facts: CountedResponse, offset: int) -> tuple[str, str, str]:
        """Return the JSON of the question, the response and the judgment."""
        instance, judgment = self.instances.get(facts.instance_id), self.judgments.get(facts.response_id)
        assert instance is not None
        assert judgment is not None
        lines = (
            self.instances.read_line(instance.offset),
            self.responses.read_line(offset),
            self.judgments.read_line(judgment.offset),
        )
        question, response, labels = (line.decode().strip() for line in lines)
        return question, response, labels

    def _find_question(self, id_: str) -> tuple[Instance, tuple[int, int]] | None:
        """Return a question without its passages, and its hashes; None where the run has no such question."""
        record = self.instances.get(id_)
        if record is None:
            return None
        hashes, reference, aliases, benchmark = marshal.loads(record.data)
        return Instance(id_, "", (), reference, aliases, benchmark), hashes

    def read_case(self, offset: int) -> JudgedCase:
        """Return the whole case of the response at an offset."""
        response = self.responses.read(offset)
        instance, judgment = self.instances.get(response.instance_id), self.judgments.get(response.id)
        assert instance is not None
        assert judgment is not None
        return JudgedCase(self.instances.read(instance.offset), response, self.judgments.read(judgment.offset))

    @property
    def _rejected(self) -> dict[str, dict[str, int]]:
        return {
            INSTANCES_FILE: dict(self.instances.rejected),
            RESPONSES_FILE: dict(self.responses.rejected),
            JUDGMENTS_FILE: dict(self.judgments.rejected),
        }

    def _list_lost_responses(self) -> Iterator[LeftOutResponse]:
        """Yield the responses that cannot be used, with the reason."""
        for where_or_id, kind in self.responses.lost:
            if kind == ID_REUSED:
                yield where_or_id, REPEATED_ID
            else:
                yield f"{RESPONSES_FILE} {where_or_id}", describe_unreadable(kind)


def _instance_bytes(instance: Instance) -> bytes:
    return marshal.dumps((hash_question(instance), instance.reference_answer, instance.aliases, instance.benchmark))


def hash_question(instance: Instance) -> tuple[int, int]:
    """Return hashes of the text of a question and of its passages."""
    passages = [[passage.id, passage.title, passage.text] for passage in instance.evidence]
    return hash64(canonical_bytes(instance.question)), hash64(canonical_bytes(passages))
