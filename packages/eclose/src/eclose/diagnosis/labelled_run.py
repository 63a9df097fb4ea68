"""Labels of one judged run, read from its three files, and where the records of its responses are."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from eclose.diagnosis.label_table import (
    JudgmentColumns,
    JudgmentPart,
    LabelTable,
    QuestionPart,
    ResponseColumns,
    ResponsePart,
)
from eclose.files.id_set import hash64
from eclose.files.record_file import hash_ids
from eclose.readers.judged_run import (
    NO_QUESTION,
    NO_RESPONSE,
    NOT_JUDGED,
    JudgedCase,
    JudgedCaseSet,
    check_judged_run,
    drop_repeats,
    list_lost_records,
    list_vouched_files,
    make_case_set,
    open_judgments,
    open_questions,
    open_responses,
    read_conversion_losses,
)
from eclose.values.identity import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from eclose.diagnosis.compare import QuestionKey
    from eclose.readers.judged_run import LeftOutResponse
    from eclose.stats.arrays import Flags, Indices
    from eclose.values.instance import Instance


class QuestionHashes(NamedTuple):
    """Hashes of the text of a question and of its passages; zero where a table of labels has none."""

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
    has_question = np.array(responses.question, np.intp) >= 0
    joined = has_question & (partner >= 0)
    rows = np.flatnonzero(answered & joined)
    labels = LabelTable.join(responses, judgments, rows, partner[rows], questions.keys, questions.positions)
    lost = np.flatnonzero(answered & ~joined)
    unknown = np.flatnonzero(judged & ~np.isin(judgment_ids, response_ids[answered]))
    left_out: Iterable[LeftOutResponse] = chain(
        zip(
            files.read_response_ids(np.array(responses.position, np.int64)[lost]),
            (NOT_JUDGED if has_one else NO_QUESTION for has_one in has_question[lost].tolist()),
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
    nearest = ordered[np.minimum(np.searchsorted(others[ordered], ids), len(ordered) - 1)]
    return np.where(others[nearest] == ids, nearest, -1)


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
        repeats = (position == before for position, before in zip(questions, [None, *questions], strict=False))
        changes = [position for position, repeat in zip(questions, repeats, strict=True) if not repeat]
        instances = zip(changes, self.questions.read_several(changes), strict=True)
        current = None
        for question, response, judgment in zip(
            questions, self.responses.read_several(responses), self.judgments.read_several(judgments), strict=True
        ):
            if current is None or current[0] != question:
                current = next(instances)
            yield JudgedCase(current[1], response, judgment)

    def read_ids(self, positions: Indices) -> Iterator[str]:
        """Yield the ids of responses."""
        return self.read_response_ids(positions[:, 1])

    def read_response_ids(self, positions: Indices) -> Iterator[str]:
        """Yield the ids of responses by their positions in their file."""
        return (response.id for response in self.responses.read_several(positions.tolist()))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        """Yield the hashes of the questions of responses."""
        return map(QuestionHashes.of, self.questions.read_several(positions[:, 0].tolist()))


class HeldCases:
    """Cases in memory, by their positions."""

    def __init__(self, cases: Sequence[JudgedCase]) -> None:
        self._cases = cases

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        """Return whole cases, in the order of their positions."""
        return (self._cases[number] for number in positions[:, 1].tolist())

    def read_ids(self, positions: Indices) -> Iterator[str]:
        """Return the ids of responses."""
        return (case.response.id for case in self.read_cases(positions))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        """Return the hashes of the questions of responses."""
        return (QuestionHashes.of(case.instance) for case in self.read_cases(positions))
