"""Traces broken by hand: each edit changes one trace and gives the labels of the changed trace, with the reason.

An edit names old text and new text, steps that are dropped or put in, or another answer. One whose old text is not
exactly once in its step is refused, so that a changed trace cannot pass under the labels of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.errors import RecordError
from eclose.files.json_reader import read_json_objects
from eclose.files.jsonl import parse_dataclass
from eclose.values.judgment import LocalFailure
from eclose.values.response import Trace
from eclose.values.verdict import FailureClass

from .ircot import read_notes, read_traces
from .labelled_response import LabelledResponse, verdict_of

if TYPE_CHECKING:
    from eclose.values.response import Response
    from eclose.values.verdict import Verdict

EDITS = Path(__file__).with_name("edits.jsonl")
CLASSES = (
    LocalFailure.UNSUPPORTED_CONTENT,
    LocalFailure.INVALID_INFERENCE,
    LocalFailure.CONSTRAINT_OR_COMPUTATION,
    LocalFailure.FALSE_COVERAGE,
    FailureClass.PATH_DEVIATION,
    FailureClass.INCOMPLETE_REASONING,
    FailureClass.ANSWER_DECOUPLING,
)


@dataclass(frozen=True)
class Change:
    """Replacement of words within a step. Steps count from 1, in the original trace."""

    step: int
    old: str
    new: str


@dataclass(frozen=True)
class Insertion:
    """New step after another."""

    after: int
    text: str


@dataclass(frozen=True)
class Edit:
    """Edit that breaks a trace."""

    id: str
    broken: str
    """One of ``CLASSES``."""
    question_id: str
    labels: dict[str, bool]
    """True labels of the broken response."""
    reason: str
    changes: tuple[Change, ...] = ()
    dropped: tuple[int, ...] = ()
    inserted: tuple[Insertion, ...] = ()
    answer: str | None = None
    """New answer; None where it stays."""

    @property
    def verdict(self) -> Verdict:
        """Labels of the broken response."""
        return verdict_of(self.labels)

    def apply(self, response: Response) -> Response:
        """Return the broken response; raise where the edit does not fit."""
        texts: dict[int, str | None] = dict(enumerate(response.trace.texts, start=1))
        for change in self.changes:
            texts[change.step] = self._changed(change, texts.get(change.step))
        for step in self.dropped:
            if texts.get(step) is None:
                raise self._misfit(f"there is no step {step} to drop")
            texts[step] = None
        behind = {insertion.after: insertion.text for insertion in self.inserted}
        if not behind.keys() <= texts.keys():
            raise self._misfit(f"there are no steps {sorted(behind.keys() - texts.keys())}")
        steps = [
            text for number, own_text in texts.items() for text in (own_text, behind.get(number)) if text is not None
        ]
        if self.answer is not None and self.answer == response.answer:
            raise self._misfit("the answer is what it was")
        return replace(response, id=f"broken-{self.id}", trace=Trace.of(*steps), answer=self.answer or response.answer)

    def _changed(self, change: Change, text: str | None) -> str:
        if text is None or text.count(change.old) != 1:
            raise self._misfit(f"{change.old!r} is not once in step {change.step}")
        return text.replace(change.old, change.new)

    def _misfit(self, problem: str) -> RecordError:
        return RecordError(f"does not fit its trace: {problem}.", record=f"edit {self.id}")


def read_edits(path: Path = EDITS) -> list[Edit]:
    """Read every edit of the file."""
    edits = []
    for raw in read_json_objects(path):
        if raw.value is None:
            raise raw.error or RecordError("cannot be read.", path=path, record=raw.where)
        edits.append(
            parse_dataclass(Edit, {("broken" if name == "class" else name): value for name, value in raw.value.items()})
        )
    return edits


def broken_set(data: Path) -> list[LabelledResponse]:
    """Apply every edit to its trace, which must have been reliable."""
    traces, notes = read_traces(data), read_notes()
    responses = []
    for edit in read_edits():
        if edit.question_id in notes:
            raise RecordError("breaks a trace that was not reliable.", record=f"edit {edit.id}")
        instance, response = traces[edit.question_id]
        responses.append(LabelledResponse(instance, edit.apply(response), edit.verdict, edit.broken))
    return responses
