"""Practice before the first task: fixed examples with the right label and its reason. First answers are stored.

The texts are invented and belong to no project, so that practice discloses nothing of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from eclose_annotate import events
from eclose_annotate.choices import PracticeMode
from eclose_annotate.people.people import AnnotatorPool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from eclose_annotate.people.people import Person


@dataclass(frozen=True, slots=True)
class TrainingItem:
    """An example with one decision."""

    id: str
    field: str
    """Name of the form field that is decided."""
    label: str
    """The right choice."""
    reason: str
    """Why it is right, shown after the answer."""
    question: str
    passages: tuple[str, ...] = ()
    step: str | None = None
    """The step to judge, for decisions on single steps."""
    reasoning: str | None = None
    answer: str | None = None
    reference: str | None = None


class TrainingProgress(NamedTuple):
    """First answers of a person."""

    name: str
    answered: int
    correct: int
    total: int


_FERRY = "In which country is the shipyard that built the ferry Silver Heron?"
_PASSAGES = (
    "[0] Silver Heron is a ferry built in 1988 by the Holm shipyard for the line to Varde.",
    "[1] The Holm shipyard lies in the town of Aster. It closed in 2003.",
    "[2] Aster is a port in Norland. Varde is a port in Sudland.",
)
_REASONING = "The Silver Heron was built by the Holm shipyard. The Holm shipyard lies in Aster."
_RESPONSES = (
    TrainingItem(
        id="tautology",
        field="substantive",
        label="no",
        reason="The step is true of any ferry: a tautology. Without it no claim, inference or identification would be"
        " lost.",
        question=_FERRY,
        passages=_PASSAGES,
        step="The shipyard that built the ferry is the shipyard where the ferry was built.",
    ),
    TrainingItem(
        id="citation",
        field="sound",
        label="yes",
        reason="Passage 0 says it. The citation is wrong, and citation marks do not count.",
        question=_FERRY,
        passages=_PASSAGES,
        step="The Silver Heron was built by the Holm shipyard [2].",
    ),
    TrainingItem(
        id="code",
        field="failure",
        label="L4",
        reason="The passages do say it: 1 and 2 together. A step that misjudges what the passages establish gets L4.",
        question=_FERRY,
        passages=_PASSAGES,
        step="The passages do not tell in which country the shipyard is.",
    ),
    TrainingItem(
        "unfinished",
        "aligned",
        "yes",
        "It goes after the shipyard and its place, as asked, and stops early. Unfinished is not misaligned.",
        _FERRY,
        reasoning=_REASONING,
    ),
    TrainingItem(
        id="gap",
        field="closed",
        label="no",
        reason="That Aster is in Norland stands only in passage 2. The passages fill no gap: the reasoning does not say"
        " it.",
        question=_FERRY,
        passages=_PASSAGES,
        reasoning=_REASONING,
        answer="Norland",
    ),
    TrainingItem(
        "fuller",
        "correct",
        "yes",
        "A fuller name of the same country, without conflicting content.",
        _FERRY,
        answer="the Kingdom of Norland",
        reference="Norland",
    ),
    TrainingItem(
        id="unsound",
        field="complete",
        label="yes",
        reason="The claims, taken as true, are enough for Norland; the last inference may be unwritten. That the year"
        " is wrong does not matter here.",
        question=_FERRY,
        passages=_PASSAGES,
        reasoning="The Holm shipyard built the Silver Heron in 1975. It lies in Aster. Aster is in Norland.",
        answer="Sudland",
        reference="Norland",
    ),
)
_QUESTIONS = (
    TrainingItem(
        id="usable",
        field="eligible",
        label="yes",
        reason="The passages lead to one answer, by 0, 1 and 2, and the reference is that answer.",
        question=_FERRY,
        passages=_PASSAGES,
        reference="Norland",
    ),
    TrainingItem(
        id="link",
        field="code",
        label="N2",
        reason="Both facts are there, but nothing says that the line's largest ferry is the Silver Heron.",
        question="Who built the largest ferry of the line to Varde?",
        passages=_PASSAGES,
        reference="the Holm shipyard",
    ),
    TrainingItem(
        id="order",
        field="code",
        label="N4",
        reason="The question does not say which ship is meant. That no passage has the fact (N1) comes later in"
        " the list.",
        question="How long is it?",
        passages=_PASSAGES,
        reference="82 metres",
    ),
)
TRAINING_ITEMS: Mapping[AnnotatorPool, tuple[TrainingItem, ...]] = {
    AnnotatorPool.RESPONSES: _RESPONSES,
    AnnotatorPool.QUESTIONS: _QUESTIONS,
}
"""Examples of each pool, in their order; pools without any have no practice."""


def list_training_items(person: Person, practice: PracticeMode) -> tuple[TrainingItem, ...]:
    """Return the examples of a person; none in a project without practice."""
    return () if practice is PracticeMode.NONE else TRAINING_ITEMS.get(person.pool, ())


def needs_practice(connection: Connection, person: Person, practice: PracticeMode) -> bool:
    """Return whether a person must answer examples before a task opens."""
    if practice is not PracticeMode.REQUIRED:
        return False
    return len(read_training_answers(connection, person)) < len(list_training_items(person, practice))


def read_training_answers(connection: Connection, person: Person) -> dict[str, str]:
    """Return the first answers of a person, by example."""
    return {row.item: row.label for row in connection.execute(_ANSWERS, {"person": person.id})}


def answer_training_item(connection: Connection, person: Person, item: TrainingItem, label: str) -> None:
    """Store an answer, unless the example was answered before: the first answer counts."""
    values = {"person": person.id, "item": item.id, "label": label, "correct": int(label == item.label)}
    connection.execute(_ADD, {**values, "at": events.current_timestamp()})


def list_training_progress(connection: Connection) -> tuple[TrainingProgress, ...]:
    """Return how all people who have practice did, in the order of invitation."""
    return tuple(
        TrainingProgress(row.name, int(row.answered), int(row.correct), len(TRAINING_ITEMS[AnnotatorPool(row.pool)]))
        for row in connection.execute(_PROGRESS)
        if row.pool in TRAINING_ITEMS
    )


_ANSWERS = text("SELECT item, label FROM annotate_training WHERE person = :person")
_ADD = text(
    "INSERT INTO annotate_training (person, item, label, correct, at) VALUES (:person, :item, :label, :correct, :at)"
    " ON CONFLICT DO NOTHING"
)
_PROGRESS = text(
    "SELECT p.name, p.pool, count(t.item) AS answered, coalesce(sum(t.correct), 0) AS correct FROM annotate_people p"
    " LEFT JOIN annotate_training t ON t.person = p.id GROUP BY p.id, p.name, p.pool ORDER BY p.id"
)
