"""Records of the traces, their two halves, and the reader that joins them with questions and passages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eclose.errors import RecordError
from eclose.files.jsonl import read_records
from eclose.values.identity import hash_sort_key
from eclose.values.response import Response, Trace
from studies.campaigns.real_labels.labelled_response import LabelledResponse, verdict_of

from .questions import QuestionSource, read_questions

if TYPE_CHECKING:
    from eclose.values.instance import Instance
    from eclose.values.verdict import SettledVerdict, Verdict

FOLDER = Path(__file__).parent
# Another salt would move questions between the halves after one of them was looked at.
HALF_SALT = "real_gaps-v1"


class TraceKind(StrEnum):
    """Kind of a trace; all steps of every kind are locally sound. The value names the file."""

    RELIABLE = "reliable"
    PATH = "path"
    INCOMPLETE = "incomplete"
    DECOUPLING = "decoupling"


class Half(StrEnum):
    """Half of the questions."""

    CHOOSE = "choose"
    """For selection and tuning."""
    TEST = "test"
    """Scored once, when everything is frozen."""


@dataclass(frozen=True)
class RealTrace:
    """Trace and answer in our words, with true labels."""

    id: str
    source: QuestionSource
    question_id: str
    kind: TraceKind
    steps: tuple[str, ...]
    answer: str
    labels: dict[str, bool]
    reason: str

    @property
    def half(self) -> Half:
        """Half of the question, so that all traces of a question are in the same one."""
        return Half.CHOOSE if int(hash_sort_key(HALF_SALT, self.question_id)[0], 16) < 8 else Half.TEST

    @property
    def verdict(self) -> Verdict:
        """True labels."""
        return verdict_of(self.labels)

    @property
    def response(self) -> Response:
        """Trace and answer as a response."""
        return Response(self.id, self.question_id, Trace.of(*self.steps), self.answer)


class RealGaps(NamedTuple):
    """Questions of a half, and responses with their verdicts in the same order."""

    instances: list[Instance]
    responses: list[Response]
    verdicts: list[SettledVerdict]


def read_traces(folder: Path = FOLDER) -> list[RealTrace]:
    """Read every trace of all four files."""
    return [trace for kind in TraceKind for trace in read_records(folder / f"{kind}.jsonl", RealTrace)]


def label_traces(half: Half | None, data: Path) -> list[LabelledResponse]:
    """Join the traces of a half with their questions; None takes both halves."""
    questions = read_questions(data)
    labelled = []
    for trace in read_traces():
        if half not in (None, trace.half):
            continue
        if trace.question_id not in questions:
            raise RecordError(f"asks {trace.question_id!r}, which is not in {data}.", record=f"trace {trace.id}")
        labelled.append(LabelledResponse(questions[trace.question_id], trace.response, trace.verdict, trace.kind))
    return labelled


def read_real_gaps(half: Half | str, data: Path | None = None) -> RealGaps:
    """Read questions, responses and verdicts of a half.

    Args:
        half: ``choose`` or ``test``.
        data: Folder with the benchmarks; by default the one that ``ECLOSE_DATA`` names.
    """
    folder = data or Path(os.environ.get("ECLOSE_DATA", "../shared/data"))
    labelled = label_traces(Half(half), folder)
    instances = {case.instance.id: case.instance for case in labelled}
    return RealGaps(list(instances.values()), [case.response for case in labelled], [case.settled for case in labelled])
