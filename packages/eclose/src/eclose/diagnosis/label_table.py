"""Labels of judged responses as columns: one row a response, some 50 bytes each, whatever the length of its texts.

Every rate, count and comparison of a run is computed from its table. An unknown label is -1, never 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eclose.diagnosis.compare import CountedRun, PairingKeys, QuestionKey, pair_responses
from eclose.files.id_set import hash64
from eclose.metrics.rates import ABSTAINED_CODES
from eclose.metrics.repeats import LabelFlipCounts
from eclose.metrics.summary import UNKNOWN_GROUP, VerdictCounts
from eclose.readers.readings import ReadingKey, find_rule
from eclose.stats.arrays import Codes, Flags, Floats, Indices
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.values.answers import contains_token_span, normalize_answer
from eclose.values.identity import canonical_bytes
from eclose.values.judgment import (
    EVIDENCE,
    NO_CLAIM_REASON,
    Criterion,
    LocalFailure,
    OwnLabel,
    PassageLabels,
    missing_reason_kind,
)
from eclose.values.response import ResponseReading, ResponseSource, Trace
from eclose.values.three_valued import Label
from eclose.values.times import to_microseconds
from eclose.values.verdict import AbstentionOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.readers.judged_run import JudgedCase
    from eclose.stats.intervals import Estimate
    from eclose.values.instance import Instance
    from eclose.values.judgment import Judgment, StepJudgment
    from eclose.values.response import Response

Hashes: TypeAlias = NDArray[np.uint64]
Times: TypeAlias = NDArray[np.int64]

VOTED_LABELS = (*Criterion, EVIDENCE)
"""Labels that a judge may give several times, by their numbers in ``LabelTable.votes``."""
NO_TIME = -(2**63)
"""In ``LabelTable.time``: the time of the response is not known, or cannot be read."""
LABEL_CODES: dict[Label, int] = {None: -1, False: 0, True: 1}
_FAILURES = tuple(LocalFailure)
_FAILURE_NUMBERS = {failure: number for number, failure in enumerate(_FAILURES)}
_CRITERIA = {str(criterion): criterion for criterion in Criterion}
_VOTED_NUMBERS = {str(name): number for number, name in enumerate(VOTED_LABELS)}
OWN_PREFIX = "criterion_"
"""Before the names of the user's own criteria, as columns."""
CONTEXT_COLUMNS = ("context_precision", "context_recall")
UNJUDGED, NOT_ASKED = -1.0, -2.0
"""What stands for a value that was asked for and is missing, and for one that was not asked for."""
_NO_CLAIM = (Criterion.LOCAL_SOUNDNESS, NO_CLAIM_REASON)


class TraceStratum(StrEnum):
    """Responses whose rates are comparable with each other, by the origin of their traces."""

    STATED = "stated"
    """Steps that the system set apart: before a marked answer, in a slot of their own, or between an agent's calls."""
    PROSE = "prose"
    """Sentences of the reply itself: what it adds beyond the answer fails C."""
    HIDDEN = "hidden"
    """Thinking, which was not written for a reader."""


class RequestedRate(NamedTuple):
    """The share of the first label of a criterion, or the mean of a value from 0 to 1."""

    n: int
    """Responses with a value."""
    unjudged: int
    """Responses for which it was asked and not given."""
    estimate: Estimate
    """With the interval over questions, which a mean keeps too: no value between 0 and 1 varies more than a share."""


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """The fields of a question that are counted."""

    id: str
    reference_answer: str | None = None
    aliases: tuple[str, ...] = ()
    benchmark: str | None = None


@dataclass(frozen=True, slots=True)
class ResponsePart:
    """The fields of a response that are counted."""

    id: str
    instance_id: str
    trace: Trace
    answer: str | None
    source: ResponseSource | None = None
    reading: ResponseReading | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class StepPart:
    """The fields of a judged step that are counted."""

    substantive: Label
    sound: Label = None
    failure: LocalFailure | None = None

    def __post_init__(self) -> None:
        """Raise where a label breaks a rule of judgments; the record is then read in full, for the message."""
        if (self.failure is not None and self.sound is not False) or (
            self.substantive is False and self.sound is not None
        ):
            raise ValueError("a failure of a sound step, or the soundness of a step that is not substantive")


@dataclass(frozen=True, slots=True)
class JudgmentPart:
    """The fields of a judgment that are counted."""

    response_id: str
    judge: str
    steps: tuple[StepPart, ...]
    aligned: Label = None
    closed: Label = None
    complete: Label = None
    correct: Label = None
    unjudged: Mapping[Criterion, str] = field(default_factory=dict)
    evidence_sufficient: Label = None
    votes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    abstained: bool = False
    own: Mapping[str, OwnLabel] = field(default_factory=dict)
    passages: PassageLabels | None = None


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The labels of the judged responses of one or more runs, in their order."""

    ids: Hashes
    """Hash of each response id."""
    question: Codes
    """Position in ``questions``."""
    model: Codes
    """Position in ``models``; -1 where the source is unknown."""
    source: Hashes
    """Hash of model, method and seed; 0 where the source is unknown."""
    judge: Codes
    """Position in ``judges``."""
    verdict: Codes
    """Position in ``VERDICTS``: the five labels, and whether the response abstains."""
    evidence: Codes
    """Whether the passages settle the question, by the judge."""
    matched: Codes
    """Whether the answer matches the reference."""
    matched_with_aliases: Codes
    """Whether the answer matches the reference or an alias."""
    without_trace: Flags
    reading: Codes
    """Position in ``readings``; -1 where it is not known how the response was read."""
    time: Times
    """When the response was given, in microseconds since 1970; ``NO_TIME`` where that is not known."""
    positions: Indices
    """Where the records of each response are: three numbers, whose meaning is up to the source of the run."""
    questions: tuple[QuestionKey, ...]
    """Dataset and id of every question, in the order of the first responses, which the draws of a comparison follow."""
    models: tuple[str, ...]
    judges: tuple[str, ...]
    readings: tuple[ReadingKey, ...]
    """Status, origin of the trace, and rule of a reading."""
    reasons: tuple[tuple[Criterion, str], ...]
    """Criteria with the kinds of reasons why a label is missing."""
    step_failures: Indices
    """Row, and position in ``LocalFailure``, of every unsound step with a code."""
    unjudged: Indices
    """Row, and position in ``reasons``, of every missing label with a reason."""
    votes: Indices
    """Row, position in ``VOTED_LABELS``, and numbers of true and of false labels of a judge that was asked again."""
    requested: tuple[str, ...] = ()
    """What judges gave on request: ``criterion_NAME`` for criteria of the user's own, and ``CONTEXT_COLUMNS``."""
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """A column for each name in ``requested``, from 0 to 1: 1 for the first label of a criterion; ``UNJUDGED`` where
    there is no label, and ``NOT_ASKED``. Without names it has no columns."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, cases: Iterable[JudgedCase]) -> Self:
        """Return the labels of cases; the position of their response and judgment is that of the case."""
        responses, judgments = ResponseColumns(), JudgmentColumns()
        keys: dict[QuestionKey, int] = {}
        for number, case in enumerate(cases):
            key = (case.instance.benchmark, case.instance.id)
            responses.add(case.response, keys.setdefault(key, len(keys)), case.instance, number)
            judgments.add(case.judgment, number)
        rows = np.arange(len(responses))
        return cls.join(responses, judgments, rows, rows, list(keys))

    @classmethod
    def join(
        cls,
        responses: ResponseColumns,
        judgments: JudgmentColumns,
        response_rows: Indices,
        judgment_rows: Indices,
        keys: Sequence[QuestionKey],
        question_positions: Sequence[int] | None = None,
    ) -> Self:
        """Return the table of some responses, each with its judgment, both by their rows in the columns.

        Args:
            responses: All responses, whose questions are numbered as in ``keys``.
            judgments: All judgments.
            response_rows: Rows of the responses.
            judgment_rows: Row of the judgment of each of them.
            keys: Dataset and id of every question.
            question_positions: Position of every question.
        """
        numbers = np.array(responses.question, np.intp)[response_rows]
        question, order = number_by_appearance(numbers)
        places = np.zeros(len(keys), np.int64) if question_positions is None else np.array(question_positions, np.int64)
        answered = (np.array(responses.position, np.int64)[response_rows],)
        judged = (np.array(judgments.position, np.int64)[judgment_rows],)
        # From rows of judgments to rows of the table.
        row_of = np.full(len(judgments.judge), -1, np.intp)
        row_of[judgment_rows] = np.arange(len(judgment_rows))
        without_steps, no_claim = np.array(responses.without_steps, bool), np.array(judgments.no_claim, bool)
        return cls(
            ids=np.array(responses.ids, np.uint64)[response_rows],
            question=question.astype(np.int32),
            model=np.array(responses.model, np.int32)[response_rows],
            source=np.array(responses.source, np.uint64)[response_rows],
            judge=np.array(judgments.judge, np.int32)[judgment_rows],
            verdict=np.array(judgments.verdict, np.uint16)[judgment_rows],
            evidence=np.array(judgments.evidence, np.int8)[judgment_rows],
            matched=np.array(responses.matched, np.int8)[response_rows],
            matched_with_aliases=np.array(responses.matched_with_aliases, np.int8)[response_rows],
            without_trace=without_steps[response_rows] | no_claim[judgment_rows],
            reading=np.array(responses.reading, np.int32)[response_rows],
            time=np.array(responses.time, np.int64)[response_rows],
            positions=np.stack([places[numbers], *answered, *judged], axis=1),
            questions=tuple(keys[number] for number in order.tolist()),
            models=tuple(responses.models),
            judges=tuple(judgments.judges),
            readings=tuple(responses.readings),
            reasons=tuple(judgments.reasons),
            step_failures=_select_entries(np.array(judgments.step_failures, np.intp).reshape(-1, 2), row_of),
            unjudged=_select_entries(np.array(judgments.unjudged, np.intp).reshape(-1, 2), row_of),
            votes=_select_entries(np.array(judgments.votes, np.intp).reshape(-1, 4), row_of),
            requested=tuple(judgments.values),
            values=judgments.tabulate_values()[judgment_rows],
        )

    @classmethod
    def concatenate(cls, tables: Sequence[LabelTable]) -> LabelTable:
        """Return the responses of several tables, one table after the other."""
        if len(tables) == 1:
            return tables[0]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(table, name) for table in tables]) for name in _COLUMNS
        }
        for name, names in _NAMED_COLUMNS.items():
            columns[name], columns[names] = _merge_codes(
                [(getattr(table, name), getattr(table, names)) for table in tables]
            )
        starts = np.cumsum([0, *map(len, tables[:-1])])
        for name in _ENTRIES:
            entries = [getattr(table, name) for table in tables]
            columns[name] = np.concatenate(entries)
            columns[name][:, 0] += np.repeat(starts, [len(part) for part in entries])
        columns["unjudged"][:, 1], columns["reasons"] = _merge_codes(
            [(table.unjudged[:, 1], table.reasons) for table in tables]
        )
        columns["requested"] = tuple(dict.fromkeys(name for table in tables for name in table.requested))
        columns["values"] = np.full((starts[-1] + len(tables[-1]), len(columns["requested"])), NOT_ASKED)
        for start, table in zip(starts.tolist(), tables, strict=True):
            places = [columns["requested"].index(name) for name in table.requested]
            columns["values"][start : start + len(table), places] = table.values
        return cls(**columns)

    def select(self, rows: Flags) -> LabelTable:
        """Return the labels of some responses."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in (*_COLUMNS, "values", *_NAMED_COLUMNS)}
        row_of = np.where(rows, np.cumsum(rows) - 1, -1)
        columns |= {name: _select_entries(getattr(self, name), row_of) for name in _ENTRIES}
        # Questions stay in the order of their first responses.
        number, order = number_by_appearance(columns["question"])
        columns["question"] = number.astype(np.int32)
        return replace(self, **columns, questions=tuple(self.questions[each] for each in order.tolist()))

    def divide_by_stratum(self) -> dict[TraceStratum, Flags]:
        """Return the rows of each stratum that occurs; the first one is that of the headline.

        Responses without a trace belong to the headline: they say of no stratum how its traces are.
        """
        strata = list(TraceStratum)
        origins = [*(origin for _, origin, _ in self.readings), None]
        # A reading of -1 takes the last origin.
        codes = np.array([strata.index(TraceStratum(origin)) if origin in strata else 0 for origin in origins])
        stratum = codes[self.reading]
        traced = ~self.without_trace | np.array([origin is not None for origin in origins])[self.reading]
        stratum[~traced] = stratum[traced].min() if traced.any() else 0
        return {strata[number]: stratum == number for number in np.unique(stratum).tolist()}

    @property
    def abstained(self) -> Flags:
        """Rows of the responses that say that they found no answer."""
        rows: Flags = self.verdict >= ABSTAINED_CODES
        return rows

    def count_abstentions(self) -> dict[AbstentionOutcome, int]:
        """Return the abstentions by whether they were right to; empty where there is none."""
        evidence = self.evidence[self.abstained]
        counts = {AbstentionOutcome.of(label): int((evidence == code).sum()) for label, code in LABEL_CODES.items()}
        return {outcome: counts[outcome] for outcome in AbstentionOutcome} if len(evidence) else {}

    def summarize_requested(self) -> dict[str, RequestedRate]:
        """Return the share or the mean of what judges gave on request, by column."""
        rates = {}
        for name, column in zip(self.requested, self.values.T, strict=True):
            judged, asked = column >= 0, column > NOT_ASKED
            if asked.any():
                values, question = column[judged], self.question[judged]
                sums = np.bincount(question, values), np.bincount(question, 1 - values)
                counts = QuestionHitCounts(tuple((hit, miss, 1) for hit, miss in zip(*sums, strict=True) if hit + miss))
                rates[name] = RequestedRate(int(judged.sum()), int((asked & ~judged).sum()), counts.estimate())
        return rates

    def count_readings(self) -> dict[ReadingKey, int]:
        """Return the numbers of responses by how they were read, most frequent first."""
        counts = np.bincount(self.reading[self.reading >= 0], minlength=len(self.readings)).tolist()
        pairs = sorted(zip(counts, self.readings, strict=True), key=lambda pair: (-pair[0], str(pair[1])))
        return {reading: count for count, reading in pairs if count}

    def count_verdicts(self) -> VerdictCounts:
        """Return question and verdict of each response."""
        return VerdictCounts(self.question.astype(np.intp), self.verdict)

    def counted_run(self) -> CountedRun:
        """Return all responses as one side of a comparison."""
        return CountedRun(self.questions, self.count_verdicts())

    def group_by_model(self) -> tuple[list[str], Indices]:
        """Return the names of the systems in alphabetical order, and the position in it of each response's system."""
        # -1 takes the last name.
        return _number_groups((*self.models, UNKNOWN_GROUP), self.model)

    def group_by_benchmark(self) -> tuple[list[str], Indices]:
        """Return the names of the datasets in alphabetical order, and the position in it of each response's dataset."""
        return _number_groups([benchmark or UNKNOWN_GROUP for benchmark, _ in self.questions], self.question)

    def list_judges(self) -> set[str]:
        """Return the judges of the responses."""
        return {self.judges[number] for number in np.unique(self.judge).tolist()}

    def systems(self) -> dict[str, CountedRun]:
        """Return the responses of each system as sides of a comparison, by name; empty unless there are two."""
        names, group = self.group_by_model()
        if len(names) != 2:
            return {}
        sides = {}
        for number, name in enumerate(names):
            counts = self.count_verdicts().select(group == number)
            # Renumbered in the order of this system's responses, which the draws of a comparison follow.
            question, order = number_by_appearance(counts.question)
            sides[name] = CountedRun(
                [self.questions[each] for each in order.tolist()], replace(counts, question=question)
            )
        return sides

    def count_flips(self) -> dict[str, LabelFlipCounts]:
        """Return the flips of each label of which a judge was asked several times."""
        flips: dict[str, LabelFlipCounts] = {}
        for number, name in enumerate(VOTED_LABELS):
            true, false = self.votes[self.votes[:, 1] == number, 2:].T
            if not len(true):
                continue
            counts = true + false
            flips[name] = LabelFlipCounts(
                responses=int((counts > 1).sum()),
                flipped=int(((true > 0) & (false > 0)).sum()),
                pairs=int((counts * (counts - 1) // 2).sum()),
                differing=int((true * false).sum()),
            )
        return flips

    def count_step_failures(self) -> tuple[dict[LocalFailure, int], dict[LocalFailure, int]]:
        """Return the numbers of unsound steps, and of responses with one, by failure code."""
        responses = np.unique(self.step_failures, axis=0)
        steps, distinct = (
            np.bincount(entries[:, 1], minlength=len(_FAILURES)).tolist() for entries in (self.step_failures, responses)
        )
        return (
            {failure: count for failure, count in zip(_FAILURES, steps, strict=True) if count},
            {failure: count for failure, count in zip(_FAILURES, distinct, strict=True) if count},
        )

    def count_unjudged(self) -> dict[Criterion, dict[str, int]]:
        """Return the missing labels by criterion and reason, in alphabetical order."""
        counts = np.bincount(self.unjudged[:, 1], minlength=len(self.reasons)).tolist()
        by_criterion: dict[Criterion, dict[str, int]] = {}
        for (criterion, reason), count in sorted(zip(self.reasons, counts, strict=True)):
            if count:
                by_criterion.setdefault(criterion, {})[reason] = count
        return by_criterion


def pair_labels(run: LabelTable, base: LabelTable) -> tuple[Indices, Indices]:
    """Return the rows of paired responses in the run and in the base run, as by ``pair_responses``."""
    numbers: dict[QuestionKey, int] = {}
    sides = []
    for labels in (run, base):
        codes = np.array([numbers.setdefault(key, len(numbers)) for key in labels.questions], np.intp)
        sides.append(PairingKeys(labels.ids, codes[labels.question], labels.source))
    return pair_responses(*sides)


_COLUMNS = (
    "ids",
    "source",
    "verdict",
    "evidence",
    "matched",
    "matched_with_aliases",
    "without_trace",
    "time",
    "positions",
)
_NAMED_COLUMNS = {"question": "questions", "model": "models", "judge": "judges", "reading": "readings"}
"""Columns of positions, with the names that these are positions in."""
_ENTRIES = ("step_failures", "unjudged", "votes")


class ResponseColumns:
    """Columns of responses that grow by one row at a time."""

    def __init__(self) -> None:
        self.ids, self.source = array("Q"), array("Q")
        self.question, self.model, self.position = array("q"), array("i"), array("q")
        self.matched, self.matched_with_aliases = array("b"), array("b")
        self.without_steps, self.reading = array("b"), array("i")
        self.time = array("q")
        self.models: dict[str, int] = {}
        self.readings: dict[ReadingKey, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def add(
        self, response: Response | ResponsePart, question: int, instance: Instance | QuestionPart | None, position: int
    ) -> None:
        """Add a response.

        Args:
            response: The response, or the part of it that is counted.
            question: Number of its question; -1 where the run has no such question.
            instance: The question, or the part of it with the accepted answers.
            position: Where the record of the response is.
        """
        source = response.source
        matched, with_aliases = _match(response.answer, instance)
        self.ids.append(hash64(response.id.encode("utf-8", "surrogatepass")))
        self.question.append(question)
        self.model.append(-1 if source is None else self.models.setdefault(source.model, len(self.models)))
        self.source.append(hash_source(source))
        self.matched.append(matched)
        self.matched_with_aliases.append(with_aliases)
        self.without_steps.append(not response.trace.steps)
        reading = find_rule(response.reading, response.trace, response.answer)
        self.reading.append(self.readings.setdefault(reading, len(self.readings)))
        time = to_microseconds(response.time)
        self.time.append(NO_TIME if time is None else time)
        self.position.append(position)


class JudgmentColumns:
    """Columns of judgments that grow by one row at a time."""

    def __init__(self) -> None:
        self.ids = array("Q")
        self.judge, self.verdict, self.position = array("i"), array("H"), array("q")
        self.evidence, self.no_claim = array("b"), array("b")
        self.step_failures, self.unjudged, self.votes = array("q"), array("q"), array("q")
        self.values: dict[str, array[float]] = {}
        self.judges: dict[str, int] = {}
        self.reasons: dict[tuple[Criterion, str], int] = {}

    def tabulate_values(self) -> Floats:
        """Return what was given on request: a row for each judgment, and a column for each name."""
        table = np.full((len(self.judge), len(self.values)), NOT_ASKED)
        for number, column in enumerate(self.values.values()):
            table[: len(column), number] = column
        return table

    def _add_value(self, name: str, row: int, value: float | bool | None) -> None:
        column = self.values.setdefault(name, array("d"))
        column.extend([NOT_ASKED] * (row - len(column)))
        column.append(UNJUDGED if value is None else value)

    def add(self, judgment: Judgment | JudgmentPart, position: int) -> None:
        """Add a judgment, or the part of it that is counted; ``position`` says where its record is."""
        row = len(self.judge)
        self.ids.append(hash64(judgment.response_id.encode("utf-8", "surrogatepass")))
        self.judge.append(self.judges.setdefault(judgment.judge, len(self.judges)))
        self.position.append(position)
        self.evidence.append(LABEL_CODES[judgment.evidence_sufficient])
        # L comes from the steps and is unknown where a reason says so.
        sound = None if Criterion.LOCAL_SOUNDNESS in judgment.unjudged else combine_steps(judgment.steps)
        labels = (sound, judgment.aligned, judgment.closed, judgment.complete, judgment.correct)
        self.verdict.append(encode_labels(labels) + ABSTAINED_CODES * judgment.abstained)
        for step in judgment.steps:
            if step.failure is not None:
                self.step_failures.extend((row, _FAILURE_NUMBERS[step.failure]))
        no_claim = False
        for criterion, reason in judgment.unjudged.items():
            pair = (_CRITERIA[criterion], missing_reason_kind(reason))
            no_claim = no_claim or pair == _NO_CLAIM
            self.unjudged.extend((row, self.reasons.setdefault(pair, len(self.reasons))))
        self.no_claim.append(no_claim)
        for name, votes in judgment.votes.items():
            if (number := _VOTED_NUMBERS.get(name)) is not None:
                self.votes.extend((row, number, votes.count(True), votes.count(False)))
        for name, label in judgment.own.items():
            self._add_value(f"{OWN_PREFIX}{name}", row, label.holds)
        if (passages := judgment.passages) is not None:
            self._add_value(CONTEXT_COLUMNS[0], row, passages.precision)
            # Without a reference the passages have labels, and recall is not asked for.
            if passages.recall is not None or passages.unjudged is not None:
                self._add_value(CONTEXT_COLUMNS[1], row, passages.recall)


def encode_labels(labels: Iterable[Label]) -> int:
    """Return the position in ``VERDICTS`` of the five labels of a response that does not abstain."""
    code = 0
    for label in labels:
        code = 3 * code + LABEL_CODES[label] + 1
    return code


def combine_steps(steps: Iterable[StepJudgment | StepPart]) -> Label:
    """Return whether every substantive step is sound, as ``Judgment.locally_sound`` in one pass."""
    unknown = False
    for step in steps:
        if step.substantive is False or step.sound:
            continue
        if step.substantive and step.sound is False:
            return False
        unknown = True
    return None if unknown else True


def _match(answer: str | None, instance: Instance | QuestionPart | None) -> tuple[int, int]:
    """Return the codes of whether an answer matches the reference, and the reference or an alias."""
    if answer is None or instance is None or instance.reference_answer is None:
        return -1, -1
    submitted = _normalize(answer)
    matched = _is_match(submitted, instance.reference_answer)
    return matched, matched or any(_is_match(submitted, alias) for alias in instance.aliases)


_normalize = lru_cache(2**14)(normalize_answer)


def _is_match(submitted: tuple[str, ...], reference: str) -> bool:
    # The rule of ``match_answer``, without normalising a reference once for every response to its question.
    expected = _normalize(reference)
    return contains_token_span(submitted, expected) or contains_token_span(expected, submitted)


@lru_cache(2**10)
def hash_source(source: ResponseSource | None) -> int:
    """Return a hash of the source of a response; zero where it is unknown."""
    return 0 if source is None else hash64(canonical_bytes([source.model, source.method, source.seed]))


def number_by_appearance(codes: Codes) -> tuple[Indices, Codes]:
    """Return the number of each code in the order of their first appearance, and the codes by number."""
    distinct, first, position = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.intp)
    number[order] = np.arange(len(order))
    return number[position], distinct[order]


def count_by_appearance(codes: Codes) -> dict[int, int]:
    """Count codes in the order of their first appearance."""
    number, distinct = number_by_appearance(codes)
    return dict(zip(distinct.tolist(), np.bincount(number, minlength=len(distinct)).tolist(), strict=True))


def _select_entries(entries: Indices, row_of: Indices) -> Indices:
    """Return the entries of the rows that are used, with their new rows."""
    rows = row_of[entries[:, 0]]
    return np.column_stack([rows, entries[:, 1:]])[rows >= 0]


def _merge_codes(parts: Sequence[tuple[Codes, Sequence[Any]]]) -> tuple[Codes, tuple[Any, ...]]:
    """Return the codes of several columns, one after the other, as positions in one list of names."""
    numbers: dict[Any, int] = {}
    codes = []
    for column, names in parts:
        # A code of -1 stays: it takes the last of the new codes.
        new = np.array([*(numbers.setdefault(name, len(numbers)) for name in names), -1], np.int32)
        codes.append(new[column])
    return np.concatenate(codes), tuple(numbers)


def _number_groups(names: Sequence[str], codes: Codes) -> tuple[list[str], Indices]:
    """Return the names that occur in alphabetical order, and the position in it of each response's name."""
    present = np.unique(codes)
    groups = sorted({names[code] for code in present.tolist()})
    position = {name: number for number, name in enumerate(groups)}
    number = np.array([position.get(name, -1) for name in names], np.intp)
    return groups, number[codes]
