"""The prompt that asks a model for a trace and an answer, and the text a good reply has.

Training, generation and serving all take their messages from here, so that what is trained is what is served,
byte for byte. The prompt knows no benchmark: its demonstrations are invented.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from eclose.core.identity import content_hash
from eclose.core.instance import Passage
from eclose.core.response import Trace
from eclose.errors import SettingError
from eclose.protocol.prompts import Message, load_text

if TYPE_CHECKING:
    from collections.abc import Iterable

ANSWER_MARKER = "Final answer:"
DEMONSTRATIONS = "response_demonstrations.json"


class Order(StrEnum):
    """What comes first in the user's turn. Evidence first lets inputs that differ in the question share it."""

    EVIDENCE_FIRST = "evidence_first"
    QUESTION_FIRST = "question_first"


def serialize_evidence(evidence: Iterable[Passage]) -> str:
    """Passages in their given order, each with its original index, title and text.

    Runs of white space become one blank, so that no passage can pretend to be two.
    """
    return "\n\n".join(
        f"[{index}] {_one_line(passage.title)}\n{_one_line(passage.text)}" for index, passage in enumerate(evidence)
    )


_BLOCK = re.compile(r"\[(\d+)\] ?(.*)\n(.*)")


def read_input(content: str) -> tuple[str, tuple[Passage, ...]] | None:
    """Question and passages out of a user's turn, whichever came first; None when it is not one of ours."""
    blocks = content.split("\n\n")
    questions = [block for block in blocks if block.startswith("Question: ")]
    found = [_BLOCK.fullmatch(block) for block in blocks if block != "Passages:" and block not in questions]
    if len(questions) != 1 or not found or not all(found):
        return None
    passages = tuple(Passage(match[1], match[2], match[3]) for match in found if match)
    return questions[0].removeprefix("Question: "), passages


def _one_line(text: str) -> str:
    return " ".join(text.split())


def completion_text(trace: Trace, answer: str) -> str:
    """The reply a model should write: numbered steps, then the answer line."""
    return f"{trace.numbered}{ANSWER_MARKER} {answer}"


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A worked example."""

    evidence: tuple[Passage, ...]
    question: str
    trace: Trace
    answer: str


def demonstrations() -> tuple[Demonstration, ...]:
    """All packaged demonstrations in their fixed order."""
    return tuple(
        Demonstration(
            tuple(
                Passage(str(index), passage["title"], passage["text"])
                for index, passage in enumerate(example["passages"])
            ),
            example["question"],
            Trace.of(*example["steps"]),
            example["answer"],
        )
        for example in json.loads(load_text(DEMONSTRATIONS).text)
    )


@dataclass(frozen=True)
class ResponsePrompt:
    """How a response is asked for."""

    demonstrations: int = 2
    """How many worked examples precede the question; 0 for none."""
    order: Order = Order.EVIDENCE_FIRST

    def __post_init__(self) -> None:
        """Refuse a number of demonstrations that does not exist."""
        if not 0 <= self.demonstrations <= len(demonstrations()):
            raise SettingError(
                f"demonstrations = {self.demonstrations}: there are {len(demonstrations())}. Ask for 0 to that many."
            )

    def messages(self, question: str, evidence: Iterable[Passage]) -> list[Message]:
        """The conversation up to the reply."""
        return [*self._opening, Message(role="user", content=self._input(question, evidence))]

    @cached_property
    def hash(self) -> str:
        """The identity of everything around question and evidence."""
        return content_hash([self._opening, self._input("{{question}}", ())])

    @cached_property
    def _opening(self) -> list[Message]:
        opening = [Message(role="system", content=load_text("response_system.md").render())]
        for example in demonstrations()[: self.demonstrations]:
            opening.append(Message(role="user", content=self._input(example.question, example.evidence)))
            opening.append(Message(role="assistant", content=completion_text(example.trace, example.answer)))
        return opening

    def _input(self, question: str, evidence: Iterable[Passage]) -> str:
        parts = [
            load_text("response_evidence.md").render(evidence=serialize_evidence(evidence)),
            load_text("response_question.md").render(question=_one_line(question)),
        ]
        return "\n\n".join(parts if self.order is Order.EVIDENCE_FIRST else reversed(parts))
