"""Seeded samples of instances, independent of the order of the file.

Instances are ranked by a hash of seed, benchmark and id; a sample of n is the first n. A larger sample therefore starts
with the smaller one.
"""

from __future__ import annotations

import heapq
import json
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.json_reader import open_bytes, read_json_objects, require_regular_file
from eclose.files.jsonl import ReadRecord, read_records
from eclose.files.manifest import hash_file, read_manifest
from eclose.files.outcome_counts import RecordCounter
from eclose.files.run_folder import RESPONSES_FILE
from eclose.files.step import companion_file_path
from eclose.values.answers import normalize_answer
from eclose.values.identity import hash_sort_key
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from eclose.files.json_reader import JsonObject
    from eclose.values.instance import Instance


DEFAULT_SEED = 42
NOT_DRAWN = "not drawn"
NOT_SELECTED = "other kind or number of hops"


def sample_instances(instances: Iterable[Instance], n: int, *, seed: int = DEFAULT_SEED) -> list[Instance]:
    """Return the first n instances in seeded order: a sample of 600 starts with the sample of 300.

    Memory holds n instances at a time. An id that occurs twice is drawn once.
    """
    if n < 1:
        raise SettingError(f"n: a sample has at least one instance, not {n}.")
    drawn: dict[int, Instance] = {}
    worst_first: list[int] = []  # negated ranks: heapq keeps the smallest first
    for instance in instances:
        rank = rank_in_seeded_order(instance, seed)
        # The worst rank only falls, so an instance that was dropped never returns and its id need not be remembered.
        if rank in drawn or (len(drawn) == n and rank > -worst_first[0]):
            continue
        drawn[rank] = instance
        heapq.heappush(worst_first, -rank)
        if len(drawn) > n:
            del drawn[-heapq.heappop(worst_first)]
    if len(drawn) < n:
        raise SettingError(f"n: asked for {n} instances, but there are only {len(drawn)} to draw from.")
    return [drawn[rank] for rank in sorted(drawn)]


def instance_matches_filter(instance: Instance, *, kinds: Collection[str] = (), hops: Collection[int] = ()) -> bool:
    """Return whether an instance passes both filters."""
    return (not kinds or instance.kind in kinds) and (not hops or instance.hops in hops)


def draw_instance_sample(
    records: Iterable[ReadRecord[Instance]],
    n: int,
    *,
    seed: int = DEFAULT_SEED,
    kinds: Collection[str] = (),
    hops: Collection[int] = (),
) -> tuple[list[ReadRecord[Instance]], RecordCounter]:
    """Return a sample of a file, and a counter of all other records. Raise where a record cannot be read."""
    # The instances are consumed by sample_instances below, so counts are taken while they pass by.
    left_out: Counter[str] = Counter()
    kind_counts: Counter[str] = Counter()
    hop_counts: Counter[int] = Counter()
    repairs: dict[str, tuple[str, ...]] = {}

    def candidates() -> Iterator[Instance]:
        for record in records:
            if record.error is not None:
                raise record.error
            if record.value is None:
                left_out[record.rejected or "no value"] += 1
                continue
            kind_counts.update(filter(None, [record.value.kind]))
            hop_counts.update(filter(None, [record.value.hops]))
            if not instance_matches_filter(record.value, kinds=kinds, hops=hops):
                left_out[NOT_SELECTED] += 1
            else:
                left_out[NOT_DRAWN] += 1
                if record.repairs:
                    repairs[record.value.id] = record.repairs
                yield record.value

    try:
        drawn = sample_instances(candidates(), n, seed=seed)
    except SettingError as short:
        raise SettingError(
            f"{short}{_list_counts('type', kind_counts)}{_list_counts('number of hops', hop_counts)}"
        ) from short
    # Every candidate was counted as not drawn above; the n that were drawn are accepted instead.
    left_out[NOT_DRAWN] -= n
    sampled = [
        ReadRecord(f"draw {number}", instance, repairs=repairs.get(instance.id, ()))
        for number, instance in enumerate(drawn, start=1)
    ]
    return sampled, RecordCounter(received=left_out.total(), rejected=+left_out)


def _list_counts(name: str, counts: Counter[Any]) -> str:
    """Return a sentence with the available values and their counts; empty where there are none."""
    listed = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
    return f" Questions by {name}: {listed}." if listed else ""


def rank_in_seeded_order(instance: Instance, seed: int) -> int:
    """Return the rank of an instance in the seeded order."""
    # With the benchmark, since ids of two benchmarks may be equal.
    return int(hash_sort_key(seed, instance.benchmark or "", instance.id), base=16)


# Characteristics of a set of questions: the benchmark table of appendix A.1, for any file.
#
# One pass over the instances, a few numbers kept for each. A value that a benchmark does not provide is None, never
# zero.


UNKNOWN = "unknown"
# Compared after normalisation, as sets of words: "Yes." is a yes, "yes and no" is neither.
_YES_NO = ({"yes"}, {"no"})


class Quartiles(NamedTuple):
    """A median with the 25th and 75th percentiles, by linear interpolation."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BenchmarkCharacteristics:
    """One row of the table, with the composition of the questions."""

    benchmark: str | None
    n: int
    n_support_known: int
    """Instances with marked supporting passages: the basis of the next three columns."""
    supporting: Quartiles | None
    distractors: Quartiles | None
    support_density: Quartiles | None
    """Supporting passages per hundred passages."""
    context_words: Quartiles | None
    kinds: Mapping[str, int]
    hops: Mapping[str, int]
    answers: Mapping[str, int]
    """Instances by type of reference answer: ``yes/no``, ``other``, or ``none`` without a reference."""


def characterize_benchmarks(instances: Iterable[Instance]) -> list[BenchmarkCharacteristics]:
    """Return one row per benchmark in alphabetical order; instances without a benchmark come last."""
    groups: dict[str | None, _Group] = {}
    for instance in instances:
        groups.setdefault(instance.benchmark, _Group()).add(instance)
    ordered = sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or ""))
    return [group.row(benchmark) for benchmark, group in ordered]


@dataclass(slots=True)
class _Group:
    """The numbers of one benchmark, in arrays of four bytes a number: a million instances take 12 MB."""

    words: array[int] = field(default_factory=lambda: array("I"))
    supporting: array[int] = field(default_factory=lambda: array("I"))
    passages: array[int] = field(default_factory=lambda: array("I"))
    """Passages of each instance with marked support, parallel to ``supporting``."""
    kinds: Counter[str] = field(default_factory=Counter)
    hops: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def add(self, instance: Instance) -> None:
        self.words.append(instance.context_words)
        # A test split marks no support; counting it as zero supporting passages would shift all three columns.
        if instance.support_ids is not None:
            self.supporting.append(len(set(instance.support_ids)))
            self.passages.append(len(instance.evidence))
        self.kinds[instance.kind or UNKNOWN] += 1
        self.hops[str(instance.hops or UNKNOWN)] += 1
        self.answers[classify_answer_type(instance.reference_answer)] += 1

    def row(self, benchmark: str | None) -> BenchmarkCharacteristics:
        supporting = np.asarray(self.supporting, dtype=np.float64)
        passages = np.asarray(self.passages, dtype=np.float64)
        return BenchmarkCharacteristics(
            benchmark,
            n=len(self.words),
            n_support_known=len(self.supporting),
            supporting=_quartiles(supporting),
            distractors=_quartiles(passages - supporting),
            support_density=_quartiles(100 * supporting / passages),
            context_words=_quartiles(np.asarray(self.words, dtype=np.float64)),
            kinds=dict(sorted(self.kinds.items())),
            hops=dict(sorted(self.hops.items())),
            answers=dict(sorted(self.answers.items())),
        )


def classify_answer_type(reference: str | None) -> str:
    """Return the type of a reference answer: ``yes/no``, ``other`` or ``none``."""
    if reference is None:
        return "none"
    return "yes/no" if set(normalize_answer(reference)) in _YES_NO else "other"


def _quartiles(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Quartiles | None:
    if not len(values):
        return None
    low, median, high = np.percentile(values, [25, 50, 75])
    return Quartiles(float(median), float(low), float(high))


# The matched pool of questions (appendix A.2): those that every model answered, so that models can be compared.
#
# A question is in the pool if its generation is complete in every run and, where questions were screened, if it is
# eligible. Runs are joined by question id, never by position.


NOT_ELIGIBLE = "not eligible"
NOT_IN_EVERY_RUN = "no response in some run"
INCOMPLETE = "incomplete in some run"


@dataclass(frozen=True, slots=True)
class MatchedQuestion:
    """A question of the matched pool."""

    id: str


@dataclass(frozen=True)
class RunCompleteness:
    """Completeness of one run's responses, by question."""

    path: Path
    responses: int
    incomplete: Mapping[str, int]
    """Responses without an answer, by reason."""
    complete: Mapping[str, bool]
    """Whether all responses to a question have an answer."""


def find_responses_file(run: Path) -> Path:
    """Return the path of a run's responses: the file itself, or that of a folder with a finished run."""
    if not run.is_dir():
        require_regular_file(run)
        return run
    path = run / RESPONSES_FILE
    manifest = companion_file_path(path, "manifest.json")
    if not path.is_file() or not manifest.is_file():
        raise UserError(f"{run}: holds no finished run. Run its command again; it goes on where it was.")
    if read_manifest(manifest).outputs.get(path.name) != hash_file(path):
        raise UserError(f"{path}: was changed after it was written. Name the file itself to use it as it is.")
    return path


def read_run_completeness(path: Path) -> RunCompleteness:
    """Return which questions of a file of responses are complete."""
    complete: dict[str, bool] = {}
    incomplete: Counter[str] = Counter()
    count = 0
    for response in read_records(path, Response):
        count += 1
        reason = response.incomplete
        if reason is not None:
            incomplete[reason.value] += 1
        # With several responses to a question, one incomplete response makes the question incomplete.
        complete[response.instance_id] = complete.get(response.instance_id, True) and reason is None
    return RunCompleteness(path, count, dict(sorted(incomplete.items())), complete)


def load_eligibility_test(path: Path) -> Callable[[str], bool]:
    """Return a test of eligibility by id, from screening records or from a plain list of ids, one a line.

    A screening record has ``id`` or ``instance_id``, and ``eligible``; a record with ``id`` alone is eligible.
    """
    require_regular_file(path)
    with open_bytes(path) as file:
        head = file.read(2**16).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]  # the byte order mark and blanks skipped
    # Anything but JSON is a list of ids, such as one kept in a spreadsheet column.
    if head not in (b"{", b"["):
        with open_bytes(path) as file:
            listed = {line.strip() for line in file.read().decode("utf-8").splitlines()}
        return lambda id_: id_ in listed
    eligibility: dict[str, bool] = {}
    for raw in read_json_objects(path):
        if raw.value is None:
            raise raw.error or RecordError("cannot be read.", path=path, record=raw.where)
        id_, eligible = _read_screening(raw.value, path, raw.where)
        if eligibility.setdefault(id_, eligible) is not eligible:
            raise RecordError(f"{id_!r} is eligible in one record and not in another.", path=path, record=raw.where)
    return lambda id_: eligibility.get(id_, False)


def _read_screening(record: JsonObject, path: Path, where: str) -> tuple[str, bool]:
    id_ = record.get("instance_id", record.get("id"))
    eligible = True if set(record) == {"id"} else record.get("eligible")
    if eligible is None and "judge" in record:
        eligible = False  # the judge gave no label, and an unknown question must not enter the pool
    if not isinstance(id_, str) or not isinstance(eligible, bool):
        example = json.dumps({"id": "q1", "eligible": True})
        raise RecordError(f"is not a screening record. Write records such as {example}.", path=path, record=where)
    return id_, eligible


def match_questions_across_runs(
    runs: Sequence[RunCompleteness], eligible: Callable[[str], bool] = lambda _: True
) -> Iterator[ReadRecord[MatchedQuestion]]:
    """Yield every question of any run in the order of ids, in the pool or rejected with a reason."""
    for id_ in sorted({id_ for run in runs for id_ in run.complete}):
        # The reasons are checked in this order, so that each question is counted under one of them. In the paper 9 of
        # 3,900 generations were incomplete, which left 1,291 of 1,300 questions (appendix A.2).
        if not all(id_ in run.complete for run in runs):
            yield ReadRecord(repr(id_), rejected=NOT_IN_EVERY_RUN)
        elif not all(run.complete[id_] for run in runs):
            yield ReadRecord(repr(id_), rejected=INCOMPLETE)
        elif not eligible(id_):
            yield ReadRecord(repr(id_), rejected=NOT_ELIGIBLE)
        else:
            yield ReadRecord(repr(id_), value=MatchedQuestion(id_))
