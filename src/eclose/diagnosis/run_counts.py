"""Counts of judged runs, with the responses that a report shows: all of a small run, a sample of a large one.

A run with more than ``LARGE_RUN`` responses is read in one pass. Its files are joined through an index on disk, so
memory grows with its questions and not with its responses.
"""

from __future__ import annotations

import heapq
import marshal
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.identity import canonical_bytes
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment, StepJudgment
from eclose.core.response import Response, Trace
from eclose.diagnosis.counts import CountedResponse, DiagnosisCounts, JudgmentFacts, count_cases
from eclose.errors import UserError
from eclose.judged_cases import (
    NO_QUESTION,
    NO_RESPONSE,
    NOT_JUDGED,
    REPEATED_ID,
    JudgedCase,
    JudgedCaseSet,
    check_judged_run,
    describe_reused_id,
    describe_unreadable,
    make_case_set,
    read_cases_of_runs,
    read_conversion_losses,
)
from eclose.store.records.json_reader import is_plain_json_lines
from eclose.store.records.jsonl import ID_REUSED
from eclose.store.records.seen_ids import hash64
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.parts import PartsFolder, is_in_parts
from eclose.store.runs.record_index import RecordIndex, UniqueScan
from eclose.store.runs.verify_files import ProvenanceCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.verdict import Verdict
    from eclose.judged_cases import LeftOutResponse

LARGE_RUN = 100_000
"""Responses above which a run is counted without being held in memory, which takes about 12 kB for each."""
SAMPLE_SIZE = 5_000
"""Responses of a large run that a report shows."""
# Rows of a part that are read at once where all are needed; a row group of a part has as many.
_SCANNED_ROWS = 2_000
FAILURE_SHARE = 0.8
"""Share of the sample that failures take at most, where there are other responses to show."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of one or more judged runs."""

    counts: DiagnosisCounts
    case_set: JudgedCaseSet
    """The responses that a report shows, and the caveats of the rates."""
    labels: tuple[JudgedCase, ...] = ()
    """Every counted response with its labels and without its texts, where they were asked for."""

    @property
    def sampled(self) -> bool:
        """Whether responses were counted that are not shown."""
        return len(self.counts) > len(self.case_set.cases)

    @property
    def labelled(self) -> tuple[JudgedCase, ...]:
        """Every counted response with its labels; of a large run only where they were asked for."""
        return self.labels if self.sampled else self.case_set.cases


def count_runs(
    runs: Sequence[Path], *, allow_stale: bool = False, large: bool = False, keep_labels: bool = False
) -> RunCounts:
    """Count judged runs together; the conditions and errors are those of ``read_cases_of_runs``.

    Args:
        runs: Folders of judged runs.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        large: Count the run, which must be a single one, without holding it in memory.
        keep_labels: Whether the labels of every response of a large run are needed; they take 0.5 kB a response.
    """
    if large:
        (run,) = runs
        return count_large_run(run, allow_stale=allow_stale, keep_labels=keep_labels)
    case_set = read_cases_of_runs(runs, allow_stale=allow_stale)
    return RunCounts(count_cases(case_set.cases), case_set)


def is_large_run(run: Path) -> bool:
    """Return whether a run has more than ``LARGE_RUN`` responses in JSON Lines, or is in parts."""
    if is_in_parts(run):
        return True
    files = [run / name for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)]
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
    counter = _Counter(ResponseSample(SAMPLE_SIZE if sample_size is None else sample_size), keep_labels=keep_labels)
    if is_in_parts(run):
        return _count_parts(run, counter, allow_stale=allow_stale)
    run = Path(run)
    with RecordIndex() as index:
        files = _RunFiles(index, run, check_judged_run(run, allow_stale=allow_stale))
        for facts, offset in files.join():
            counter.add(facts, offset)
        cases = [files.read_case(offset) for offset in counter.sample.positions()]
        return RunCounts(counter.counts, files.make_case_set(cases), tuple(counter.labels))


def _count_parts(run: Path | str, counter: _Counter, *, allow_stale: bool) -> RunCounts:
    """Count a run in parts; the texts of the sample alone are read."""
    from eclose.diagnosis.run_parts import count_part, read_part_cases  # noqa: PLC0415 - rarely needed

    folder = PartsFolder(run)
    manifest = folder.read_manifest()
    ProvenanceCheck(manifest.checked, manifest.stale).refuse_stale(
        Path(folder.name), "Judge these responses, split the run again", allow_stale=allow_stale
    )
    first = 0
    starts = []
    for name, rows in manifest.parts:
        starts.append(first)
        for position, facts in enumerate(count_part(folder, name), start=first):
            counter.add(facts, position)
        first += rows
    # The responses of each part by their positions in it.
    by_part: dict[int, list[int]] = {}
    for position in counter.sample.positions():
        part = bisect_right(starts, position) - 1
        by_part.setdefault(part, []).append(position - starts[part])
    cases = [
        case
        for part, positions in sorted(by_part.items())
        for case in read_part_cases(folder, manifest.parts[part][0], positions)
    ]
    case_set = JudgedCaseSet(
        tuple(cases),
        manifest.left_out,
        manifest.rejected,
        manifest.stale,
        checked=manifest.checked,
        selected=manifest.selected,
    )
    return RunCounts(counter.counts, case_set, tuple(counter.labels))


def scan_large_run(run: Path | str, *, allow_stale: bool = False) -> Iterator[JudgedCase]:
    """Yield every judged response of a run in JSON Lines or in parts, one at a time."""
    if is_in_parts(run):
        from eclose.diagnosis.run_parts import read_part_cases  # noqa: PLC0415 - rarely needed

        folder = PartsFolder(run)
        for name, rows in folder.read_manifest().parts:
            # Some rows at a time: the texts of a whole part may take half a gigabyte.
            for first in range(0, rows, _SCANNED_ROWS):
                yield from read_part_cases(folder, name, list(range(first, min(first + _SCANNED_ROWS, rows))))
        return
    run = Path(run)
    with RecordIndex() as index:
        files = _RunFiles(index, run, check_judged_run(run, allow_stale=allow_stale))
        yield from (files.read_case(offset) for _, offset in files.join())


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


class _Counter:
    """Counts, sample and labels of a run that is read in one pass."""

    def __init__(self, sample: ResponseSample, *, keep_labels: bool) -> None:
        self.counts, self.sample = DiagnosisCounts(), sample
        self.labels: list[JudgedCase] = []
        self._keep_labels = keep_labels

    def add(self, facts: CountedResponse, position: int) -> None:
        """Count a response; ``position`` says where its records are."""
        self.counts.add(facts)
        self.sample.add(facts.response_id, facts.verdict, position)
        if self._keep_labels:
            self.labels.append(_without_texts(facts))


_NO_ENTRIES: dict[Any, Any] = {}
_ONE_STEP = {label: (StepJudgment(True, label),) for label in (True, False, None)}


def _without_texts(facts: CountedResponse) -> JudgedCase:
    """Return a case with the five labels of a response and nothing else; equal parts are shared."""
    verdict = facts.verdict
    judgment = Judgment(
        facts.response_id,
        facts.judge,
        _ONE_STEP[verdict.locally_sound],
        aligned=verdict.aligned,
        closed=verdict.closed,
        complete=verdict.complete,
        correct=verdict.correct,
        unjudged=_NO_ENTRIES,
        reasons=_NO_ENTRIES,
        votes=_NO_ENTRIES,
    )
    instance = Instance(facts.instance_id, "", (), benchmark=facts.benchmark)
    return JudgedCase(instance, Response(facts.response_id, facts.instance_id, Trace(()), None), judgment)


def compare_questions(run: DiagnosisCounts, base: DiagnosisCounts) -> int:
    """Return the number of shared questions with other passages in the base run, by their hashes.

    Raises:
        UserError: One id stands for different questions in the two runs.
    """
    hashes = dict(zip(base.question_keys(), base.question_hashes(), strict=True))
    differing = 0
    for key, (text, passages) in zip(run.question_keys(), run.question_hashes(), strict=True):
        base_text, base_passages = hashes.get(key, (text, passages))
        if text != base_text:
            raise UserError(
                f"question {key[1]} has another text in the base run. "
                "Runs can be compared only where the same id is the same question."
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
        """Number of unused records by file and reason."""
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
    """Return what counting needs of a question."""
    return marshal.dumps((hash_question(instance), instance.reference_answer, instance.aliases, instance.benchmark))


def hash_question(instance: Instance) -> tuple[int, int]:
    """Return hashes of the text of a question and of its passages."""
    passages = [[passage.id, passage.title, passage.text] for passage in instance.evidence]
    return hash64(canonical_bytes(instance.question)), hash64(canonical_bytes(passages))


class ResponseSample:
    """A bounded choice of responses: all failures up to a share of the size, then others.

    The hash of the id decides among failures, and among others, so the choice depends neither on the order of the
    responses nor on their division into parts.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # Heaps of (minus hash, position), so that the largest hash leaves first.
        self._failures: list[tuple[int, int]] = []
        self._others: list[tuple[int, int]] = []

    def add(self, id_: str, verdict: Verdict, position: int) -> None:
        """Offer a response; ``position`` says where its records are."""
        heap = self._failures if verdict.reliable is False else self._others
        entry = (-hash64(id_.encode("utf-8", "surrogatepass")), position)
        if len(heap) < self._size:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)

    def positions(self) -> list[int]:
        """Return the positions of the chosen responses in ascending order."""
        others = min(len(self._others), max(self._size - len(self._failures), round((1 - FAILURE_SHARE) * self._size)))
        chosen = [
            *heapq.nlargest(self._size - others, self._failures),
            *heapq.nlargest(others, self._others),
        ]
        return sorted(position for _, position in chosen)
