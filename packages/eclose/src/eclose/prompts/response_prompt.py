"""The prompt that asks a model for a trace and an answer, and the layout of its completion.

Training, generation and serving share these messages byte for byte. The demonstrations are invented and come from no
benchmark.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from eclose.errors import SettingError
from eclose.prompts.locked_texts import PromptMessage, load_prompt_text
from eclose.values.identity import content_hash
from eclose.values.instance import Passage
from eclose.values.response import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

ANSWER_MARKER = "Final answer:"
DEMONSTRATIONS_FILE = "response_demonstrations.json"


class PromptOrder(StrEnum):
    """The order of evidence and question in the user message."""

    # Evidence first lets inputs that differ in the question share a prefix, and with it the computation.
    EVIDENCE_FIRST = "evidence_first"
    QUESTION_FIRST = "question_first"


def serialize_evidence(evidence: Iterable[Passage]) -> str:
    """Return the passages in order, each with its index, title and text."""
    # White space is collapsed, because a blank line inside a passage would look like the start of another one.
    return "\n\n".join(
        f"[{index}] {_one_line(passage.title)}\n{_one_line(passage.text)}" for index, passage in enumerate(evidence)
    )


# A passage as ``serialize_evidence`` writes it: index and title on the first line, text on the second.
_BLOCK = re.compile(r"\[(\d+)\] ?(.*)\n(.*)")


def parse_question_message(content: str) -> tuple[str, tuple[Passage, ...]] | None:
    """Return question and passages of a user message in either order; None for a message of another layout."""
    blocks = content.split("\n\n")
    questions = [block for block in blocks if block.startswith("Question: ")]
    matches = [_BLOCK.fullmatch(block) for block in blocks if block != "Passages:" and block not in questions]
    if len(questions) != 1 or not matches or not all(matches):
        return None
    passages = tuple(Passage(match[1], match[2], match[3]) for match in matches if match)
    return questions[0].removeprefix("Question: "), passages


def _one_line(text: str) -> str:
    return " ".join(text.split())


def format_completion(trace: Trace, answer: str) -> str:
    """Return the completion that the prompt asks for: numbered steps, then the answer line."""
    return f"{trace.numbered}{ANSWER_MARKER} {answer}"


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A worked example that precedes the question."""

    evidence: tuple[Passage, ...]
    question: str
    trace: Trace
    answer: str


def load_demonstrations() -> tuple[Demonstration, ...]:
    """Load all packaged demonstrations in their fixed order."""
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
        for example in json.loads(load_prompt_text(DEMONSTRATIONS_FILE).text)
    )


# Without slots: ``cached_property`` needs the instance dictionary.
@dataclass(frozen=True)
class ResponsePrompt:
    """The prompt for a response, by number of demonstrations and order of its parts."""

    demonstrations: int = 2
    """Number of worked examples before the question."""
    order: PromptOrder = PromptOrder.EVIDENCE_FIRST

    def __post_init__(self) -> None:
        available = len(load_demonstrations())
        if not 0 <= self.demonstrations <= available:
            raise SettingError(f"demonstrations = {self.demonstrations}: choose a number from 0 to {available}.")

    def messages(self, question: str, evidence: Iterable[Passage]) -> list[PromptMessage]:
        """Return the conversation up to the reply."""
        return [*self._opening, PromptMessage(role="user", content=self._input(question, evidence))]

    @cached_property
    def hash(self) -> str:
        """Hash of everything in the prompt but question and evidence."""
        return content_hash([self._opening, self._input("{{question}}", ())])

    @cached_property
    def _opening(self) -> list[PromptMessage]:
        # System message, then a user and an assistant message per demonstration.
        opening = [PromptMessage(role="system", content=load_prompt_text("response_system.md").render())]
        for example in load_demonstrations()[: self.demonstrations]:
            opening.append(PromptMessage(role="user", content=self._input(example.question, example.evidence)))
            opening.append(PromptMessage(role="assistant", content=format_completion(example.trace, example.answer)))
        return opening

    def _input(self, question: str, evidence: Iterable[Passage]) -> str:
        parts = [
            load_prompt_text("response_evidence.md").render(evidence=serialize_evidence(evidence)),
            load_prompt_text("response_question.md").render(question=_one_line(question)),
        ]
        return "\n\n".join(parts if self.order is PromptOrder.EVIDENCE_FIRST else reversed(parts))
