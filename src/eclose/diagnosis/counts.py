"""Counts of judged responses that a diagnosis is computed from: a small value with an associative ``merge``.

A run is counted in one pass, or part by part by several workers whose counts are merged in the order of the parts.
Memory grows with the questions of a run, not with its responses.
"""

from __future__ import annotations

import marshal
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eclose.core.identity import canonical_bytes
from eclose.core.judgment import NO_CLAIM_REASON, Criterion, LocalFailure, missing_reason_kind
from eclose.core.parse_trace import has_prose_trace
from eclose.core.three_valued import Label
from eclose.core.verdict import Verdict
from eclose.diagnosis.compare import CountedRun
from eclose.judged_cases import EvidenceSufficiency, JudgedCase, match_accepted_answers, match_reference
from eclose.metrics.rates import VERDICTS
from eclose.metrics.repeat_consistency import LabelFlipCounts, count_label_flips, merge_label_flips
from eclose.metrics.summary import UNKNOWN_GROUP, VerdictCounts
from eclose.store.records.seen_ids import hash64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.core.instance import Instance
    from eclose.core.judgment import Judgment
    from eclose.core.response import Response, ResponseSource
    from eclose.stats.arrays import Codes, Flags, Indices

VERDICT_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}
_EVIDENCE = tuple(EvidenceSufficiency)
_EVIDENCE_CODES = {kind: code for code, kind in enumerate(_EVIDENCE)}
# A cell is one integer: 34 bits of question, 18 of model, 3 of evidence and 8 of verdict.
_MODEL_BITS, _EVIDENCE_BITS, _VERDICT_BITS = 18, 3, 8
_Integers: TypeAlias = NDArray[np.int64]
_BUFFER = 1 << 17
"""Responses that wait to be counted into cells; sorting them one by one would take far longer."""


class JudgmentFacts(NamedTuple):
    """The facts of a judgment that are counted."""

    judge: str
    verdict: Verdict
    evidence: EvidenceSufficiency
    step_failures: tuple[LocalFailure, ...]
    unjudged: tuple[tuple[Criterion, str], ...]
    votes: Mapping[str, tuple[Label, ...]]

    @classmethod
    def of(cls, judgment: Judgment) -> JudgmentFacts:
        """Return the facts of a judgment."""
        return cls(
            judgment.judge,
            judgment.verdict,
            EvidenceSufficiency.of(judgment.evidence_sufficient),
            tuple(step.failure for step in judgment.steps if step.failure is not None),
            tuple((criterion, missing_reason_kind(reason)) for criterion, reason in judgment.unjudged.items()),
            judgment.votes,
        )

    def to_bytes(self) -> bytes:
        """Return a compact form for temporary files."""
        codes = VERDICT_CODES[self.verdict], _EVIDENCE_CODES[self.evidence]
        # Plain texts: ``marshal`` takes no subclasses of str, which enumerations are.
        failures = [str(code) for code in self.step_failures]
        unjudged = [(str(criterion), reason) for criterion, reason in self.unjudged]
        return marshal.dumps((self.judge, *codes, failures, unjudged, {str(k): v for k, v in self.votes.items()}))

    @classmethod
    def from_bytes(cls, data: bytes) -> JudgmentFacts:
        """Return the facts from what ``to_bytes`` returned in the same process."""
        judge, verdict, evidence, failures, unjudged, votes = marshal.loads(data)
        return cls(
            judge,
            VERDICTS[verdict],
            _EVIDENCE[evidence],
            tuple(map(LocalFailure, failures)),
            tuple((Criterion(criterion), reason) for criterion, reason in unjudged),
            votes,
        )


@dataclass(frozen=True, slots=True)
class CountedResponse:
    """The facts of a judged response that are counted; texts are not among them."""

    response_id: str
    instance_id: str
    benchmark: str | None
    model: str | None
    judge: str
    verdict: Verdict
    evidence: EvidenceSufficiency
    matched: Label
    matched_with_aliases: Label
    step_failures: tuple[LocalFailure, ...] = ()
    """Failure code of every unsound step that has one."""
    unjudged: tuple[tuple[Criterion, str], ...] = ()
    """Missing labels with the kind of their reason."""
    votes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    without_trace: bool = False
    prose_trace: bool = False
    question_hashes: tuple[int, int] = (0, 0)
    """Hashes of the question's text and of its passages; zeros where they were not computed."""
    source_hash: int = 0
    """Hash of model, method and seed; zero where the source is unknown."""

    @classmethod
    def of(cls, case: JudgedCase) -> CountedResponse:
        """Return the facts of a case."""
        return cls.join(case.instance, case.response, JudgmentFacts.of(case.judgment))

    @classmethod
    def join(
        cls, instance: Instance, response: Response, judgment: JudgmentFacts, question_hashes: tuple[int, int] = (0, 0)
    ) -> CountedResponse:
        """Return the facts of a response; the passages of the instance are not read."""
        return cls(
            response.id,
            instance.id,
            instance.benchmark,
            response.source.model if response.source else None,
            judgment.judge,
            judgment.verdict,
            judgment.evidence,
            match_reference(instance, response),
            match_accepted_answers(instance, response),
            judgment.step_failures,
            judgment.unjudged,
            judgment.votes,
            without_trace=not response.trace.steps or (Criterion.LOCAL_SOUNDNESS, NO_CLAIM_REASON) in judgment.unjudged,
            prose_trace=has_prose_trace(response),
            question_hashes=question_hashes,
            source_hash=hash_source(response.source),
        )


@lru_cache(2**10)
def hash_source(source: ResponseSource | None) -> int:
    """Return a hash of the source of a response; zero where it is unknown."""
    return 0 if source is None else hash64(canonical_bytes([source.model, source.method, source.seed]))


class CountedCells(NamedTuple):
    """The cells of a run: numbers of responses by question, model, evidence and verdict, one row for each cell."""

    counts: VerdictCounts
    benchmark: Codes
    """Position in ``benchmarks`` of each row."""
    model: Codes
    """Position in ``models`` of each row."""
    evidence: Codes
    """Position of each row's kind of evidence in ``EvidenceSufficiency``."""
    benchmarks: Sequence[str]
    models: Sequence[str]

    def has_evidence(self, kind: EvidenceSufficiency) -> Flags:
        """Return which rows have a kind of evidence."""
        return np.equal(self.evidence, _EVIDENCE_CODES[kind])


class DiagnosisCounts:
    """Counts of judged responses by question, model, evidence and verdict, and the totals of a report.

    ``a.merge(b)`` equals counting the responses of ``a`` and then those of ``b``, so merging is associative. Questions
    are numbered in the order of their first response, which the draws of a comparison follow.
    """

    def __init__(self) -> None:
        self.judges: set[str] = set()
        self.judged_models: set[tuple[str, str]] = set()
        """Pairs of a judge and a model whose responses it judged."""
        self.joint: Counter[tuple[Label, Label, Label]] = Counter()
        self.local_failures: Counter[LocalFailure] = Counter()
        self.local_failure_responses: Counter[LocalFailure] = Counter()
        self.matching: Counter[tuple[Label, Label]] = Counter()
        """Responses by correctness to the judge and by matching."""
        self.alias_matching: Counter[tuple[Label, Label]] = Counter()
        self.unjudged: Counter[tuple[Criterion, str]] = Counter()
        self.flips: dict[str, LabelFlipCounts] = {}
        self.without_trace = 0
        self.prose_traces = 0
        # By benchmark and then by id: a key of both would be a tuple for every question.
        self._questions: dict[str | None, dict[str, int]] = {}
        self._benchmarks: dict[str | None, int] = {}
        self._benchmark_of = array("i")
        # Two hashes for each question.
        self._hashes = array("Q")
        self._orders = _ModelOrders()
        self._models: dict[str | None, int] = {}
        self._cells = np.empty(0, np.int64)
        self._times = np.empty(0, np.int64)
        self._buffer = array("q")

    def __len__(self) -> int:
        return self.joint.total()

    @property
    def questions(self) -> int:
        """Number of different questions."""
        return len(self._benchmark_of)

    def add(self, facts: CountedResponse) -> None:
        """Count one response."""
        verdict = facts.verdict
        question = self._number_question(facts.benchmark, facts.instance_id, facts.question_hashes)
        self._orders.add(UNKNOWN_GROUP if facts.model is None else facts.model, question)
        model = self._models.setdefault(facts.model, len(self._models))
        self._buffer.append(_encode_cell(question, model, _EVIDENCE_CODES[facts.evidence], VERDICT_CODES[verdict]))
        if len(self._buffer) >= _BUFFER:
            self._count_buffer()
        # Totals that no interval is computed from need no question.
        self.judges.add(facts.judge)
        if facts.model is not None:
            self.judged_models.add((facts.judge, facts.model))
        self.joint[verdict.locally_sound, verdict.aligned, verdict.closed] += 1
        self.local_failures.update(facts.step_failures)
        self.local_failure_responses.update(set(facts.step_failures))
        self.matching[verdict.correct, facts.matched] += 1
        self.alias_matching[verdict.correct, facts.matched_with_aliases] += 1
        self.unjudged.update(facts.unjudged)
        if facts.votes:
            self.flips = merge_label_flips(self.flips, count_label_flips([facts]))
        self.without_trace += facts.without_trace
        self.prose_traces += facts.prose_trace

    def merge(self, other: DiagnosisCounts) -> DiagnosisCounts:
        """Return the counts of the responses of both; neither is changed."""
        merged = DiagnosisCounts()
        for counts in (self, other):
            merged.include(counts)
        return merged

    def include(self, other: DiagnosisCounts) -> None:
        """Add the counts of another value to these; it is not changed."""
        other._count_buffer()
        question, model, evidence, verdict = _decode_cells(other._cells)
        # Numbers of questions and models differ between parts, so the cells are encoded again.
        new_question = np.fromiter(self._number_questions(other), np.int64, other.questions)
        self._orders.include(other._orders, new_question.tolist())
        models = (self._models.setdefault(name, len(self._models)) for name in other._models)
        new_model = np.fromiter(models, np.int64, len(other._models))
        self._add_cells(_encode_cell(new_question[question], new_model[model], evidence, verdict), other._times)
        self.judges |= other.judges
        self.judged_models |= other.judged_models
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.flips = merge_label_flips(self.flips, other.flips)
        self.without_trace += other.without_trace
        self.prose_traces += other.prose_traces

    def cells(self) -> CountedCells:
        """Return the cells with the groups of each."""
        self._count_buffer()
        question, model, evidence, verdict = _decode_cells(self._cells)
        benchmarks, benchmark_groups = _number_groups(name or UNKNOWN_GROUP for name in self._benchmarks)
        models, model_groups = _number_groups(UNKNOWN_GROUP if name is None else name for name in self._models)
        benchmark_of = np.array(self._benchmark_of, np.int32)
        return CountedCells(
            VerdictCounts(question, verdict, self._times.astype(np.intp, copy=False)),
            benchmark_groups[benchmark_of][question],
            model_groups[model],
            evidence,
            benchmarks,
            models,
        )

    def question_keys(self) -> list[tuple[str | None, str]]:
        """Return dataset and id of every question, by number."""
        benchmarks = list(self._benchmarks)
        return [(benchmarks[number], id_) for number, id_ in zip(self._benchmark_of, self._list_ids(), strict=True)]

    def question_hashes(self) -> list[tuple[int, int]]:
        """Return the hashes of the text and of the passages of every question, by number."""
        return list(zip(self._hashes[::2], self._hashes[1::2], strict=True))

    def counted_run(self) -> CountedRun:
        """Return all responses as one side of a comparison."""
        return CountedRun(self.question_keys(), self.cells().counts)

    def systems(self) -> dict[str, CountedRun]:
        """Return the responses of each model as sides of a comparison, by name; empty unless there are two models."""
        orders = self._orders.by_model
        if orders is None or len(orders) != 2:
            return {}
        cells, keys = self.cells(), self.question_keys()
        sides = {}
        for number, name in enumerate(cells.models):
            counts = cells.counts.select(cells.model == number)
            # Renumbered in the order of this model's responses, which the draws of a comparison follow.
            order = np.array(orders[name], np.intp)
            position = np.empty(self.questions, np.intp)
            position[order] = np.arange(len(order))
            sides[name] = CountedRun(
                [keys[question] for question in orders[name]], replace(counts, question=position[counts.question])
            )
        return sides

    def _number_question(self, benchmark: str | None, id_: str, hashes: tuple[int, int]) -> int:
        """Return the number of a question; a new question gets the next one."""
        numbers = self._questions.setdefault(benchmark, {})
        number = numbers.setdefault(id_, len(self._benchmark_of))
        if number == len(self._benchmark_of):
            self._benchmark_of.append(self._benchmarks.setdefault(benchmark, len(self._benchmarks)))
            self._hashes.extend(hashes)
        return number

    def _list_ids(self) -> list[str]:
        """Return the id of every question, by number."""
        ids = [""] * self.questions
        for numbers in self._questions.values():
            for id_, number in numbers.items():
                ids[number] = id_
        return ids

    def _number_questions(self, other: DiagnosisCounts) -> Iterator[int]:
        """Yield the number here of every question of another value, by its number there."""
        ids, benchmarks = other._list_ids(), list(other._benchmarks)
        # One question at a time: a million tuples of keys and hashes would take 200 MB.
        for id_, benchmark, *hashes in zip(
            ids, other._benchmark_of, other._hashes[::2], other._hashes[1::2], strict=True
        ):
            yield self._number_question(benchmarks[benchmark], id_, (hashes[0], hashes[1]))

    def _count_buffer(self) -> None:
        if self._buffer:
            waiting = np.frombuffer(self._buffer, np.int64)
            self._add_cells(waiting, np.ones(len(waiting), np.int64))
            self._buffer = array("q")

    def _add_cells(self, cells: _Integers, times: _Integers) -> None:
        self._cells, positions = np.unique(np.concatenate([self._cells, cells]), return_inverse=True)
        self._times = np.bincount(positions, np.concatenate([self._times, times])).astype(np.int64)


class _ModelOrders:
    """Questions in the order of each model's first responses, while there are at most two models.

    Two systems are compared on the questions that both answer, in the order of the first. More are not compared.
    """

    def __init__(self) -> None:
        self.by_model: dict[str, array[int]] | None = {}
        # One bit for each model that answered the question.
        self._answered = bytearray()

    def add(self, model: str, question: int) -> None:
        """Note a response of a model to a question."""
        if self.by_model is None:
            return
        order = self.by_model.setdefault(model, array("I"))
        if len(self.by_model) > 2:
            self.by_model, self._answered = None, bytearray()
            return
        bit = 1 << list(self.by_model).index(model)
        if question >= len(self._answered):
            self._answered.extend(bytes(question + 1 - len(self._answered)))
        if not self._answered[question] & bit:
            self._answered[question] |= bit
            order.append(question)

    def include(self, other: _ModelOrders, numbers: Sequence[int]) -> None:
        """Add the orders of another value, whose questions have these numbers here."""
        if other.by_model is None:
            self.by_model, self._answered = None, bytearray()
            return
        for model, order in other.by_model.items():
            for question in order:
                self.add(model, numbers[question])


_COUNTERS = ("joint", "local_failures", "local_failure_responses", "matching", "alias_matching", "unjudged")


def count_cases(cases: Iterable[JudgedCase]) -> DiagnosisCounts:
    """Count cases in one pass; none of them is kept."""
    counts = DiagnosisCounts()
    for case in cases:
        counts.add(CountedResponse.of(case))
    return counts


def _encode_cell(question: Any, model: Any, evidence: Any, verdict: Any) -> Any:
    """Return the integer of a cell; arrays of numbers give the integers of many cells."""
    return (((question << _MODEL_BITS | model) << _EVIDENCE_BITS) | evidence) << _VERDICT_BITS | verdict


def _decode_cells(cells: _Integers) -> tuple[Indices, Codes, Codes, Codes]:
    """Return question, model, evidence and verdict of every cell."""
    parts: list[Codes] = []
    shift = 0
    # Small types: a million cells would take 32 MB in numbers of 8 bytes.
    for bits, kind in ((_VERDICT_BITS, np.uint8), (_EVIDENCE_BITS, np.uint8), (_MODEL_BITS, np.int32)):
        parts.append((cells >> shift & ((1 << bits) - 1)).astype(kind))
        shift += bits
    verdict, evidence, model = parts
    return (cells >> shift).astype(np.intp, copy=False), model, evidence, verdict


def _number_groups(names: Iterable[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the names of groups in alphabetical order, and the position in it of each given name."""
    labels = list(names)
    groups = sorted(set(labels))
    positions = {group: position for position, group in enumerate(groups)}
    return groups, np.array([positions[label] for label in labels], np.int32)
