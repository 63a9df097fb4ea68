"""Replies of checkpoints to held-out families, in one JSON Lines file that an interrupted selection reads back.

Replies are stored under the hash of everything that determines them, so replies of another adapter or other settings
are never mixed up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eclose.core.answers import match_any_answer
from eclose.core.family import Family, ViewKind, select_fixed_edit
from eclose.core.identity import canonical_json
from eclose.core.response import parse_completion
from eclose.errors import RecordError
from eclose.models.interface import FinishReason, Request
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.json_reader import read_json_objects
from eclose.store.records.jsonl import parse_dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from eclose.models.interface import Decoding, Reply
    from eclose.protocol.response_prompt import ResponsePrompt


@dataclass(frozen=True)
class CheckpointQuestion:
    """An input of a family, with the answers that count as correct."""

    family_id: str
    view: ViewKind
    request: Request
    accepted: tuple[str, ...]
    """Correct answer and its aliases."""


def build_checkpoint_questions(
    family: Family, prompt: ResponsePrompt, decoding: Decoding
) -> Iterator[CheckpointQuestion]:
    """Yield the three inputs of a family."""
    # Aliases are those of the source's answer; answers to edited inputs have none.
    edits = (select_fixed_edit(family), family.question_edit)
    for view, aliases in ((family.gold, family.source.aliases), *((edit.view, ()) for edit in edits)):
        messages = tuple(prompt.messages(view.question, view.evidence))
        yield CheckpointQuestion(family.id, view.kind, Request(messages, decoding), (view.answer, *aliases))


@dataclass(frozen=True, slots=True)
class CheckpointReply:
    """A reply of a checkpoint."""

    family_id: str
    view: ViewKind
    text: str
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, question: CheckpointQuestion, reply: Reply) -> CheckpointReply:
        """Return a model's reply to a question as a record."""
        usage = reply.usage
        tokens = usage.prompt_tokens, usage.completion_tokens
        return cls(question.family_id, question.view, reply.text, reply.finish, *tokens)

    @property
    def answer(self) -> str | None:
        """The submitted answer; None for an incomplete generation."""
        return parse_completion(self.text, cut_off=self.finish is not FinishReason.STOP).answer

    def is_correct(self, question: CheckpointQuestion) -> bool:
        """Return whether the answer is accepted; a reply without an answer is wrong."""
        return self.answer is not None and match_any_answer(self.answer, question.accepted)


class CheckpointReplyFile:
    """File with the replies of all checkpoints, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for raw in read_json_objects(path) if path.exists() else ():
            if raw.value is None or not isinstance(raw.value.get("key"), str):
                problem = "is not a reply of a selection. Move the file away to start again."
                raise raw.error or RecordError(problem, path=path, record=raw.where)
            self._lines[raw.value["key"]].append(raw.value)

    def find(self, key: str, questions: Sequence[CheckpointQuestion]) -> list[CheckpointReply] | None:
        """Return the replies under a key; None unless there is one for every question."""
        replies = [parse_dataclass(CheckpointReply, line, extra="ignore") for line in self._lines.get(key, ())]
        # The order must agree as well: replies and questions are paired by position.
        inputs = [(question.family_id, question.view) for question in questions]
        return replies if [(reply.family_id, reply.view) for reply in replies] == inputs else None

    def write(
        self,
        key: str,
        checkpoint: str,
        questions: Sequence[CheckpointQuestion],
        replies: Sequence[CheckpointReply],
    ) -> None:
        """Write the replies under a key, each with its parsed answer and whether it is correct."""
        lines = [
            {
                "key": key,
                "checkpoint": checkpoint,
                **asdict(reply),
                "answer": reply.answer,
                "accepted": list(question.accepted),
                "correct": reply.is_correct(question),
            }
            for question, reply in zip(questions, replies, strict=True)
        ]
        if self._lines.get(key) == lines:
            return  # unchanged: the file need not be rewritten
        # Replies under other keys stay in the file: going back to earlier settings finds them again.
        self._lines[key] = lines
        # The file is rewritten as a unit: a crash leaves the earlier version.
        with AtomicFile(self.path) as file:
            for group in self._lines.values():
                for line in group:
                    file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")
