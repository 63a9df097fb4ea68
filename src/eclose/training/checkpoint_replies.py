"""What checkpoints answered when they were compared: one JSON Lines file, kept whole, read back when work goes on.

Replies are kept by the hash of everything that decided them, so those of another adapter or setting are never taken
for these.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eclose.core.answers import match_any_answer
from eclose.core.edit_selection import select_fixed_edit
from eclose.core.family import Family, View, ViewKind
from eclose.core.identity import canonical_json
from eclose.core.response import parse_completion
from eclose.errors import RecordError
from eclose.models.interface import FinishReason, Request
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.json_reader import read_objects
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from eclose.models.interface import Decoding, Reply
    from eclose.protocol.response_prompt import ResponsePrompt


@dataclass(frozen=True)
class Asked:
    """One input of a family, and the answers that count as right."""

    family_id: str
    view: ViewKind
    request: Request
    accepted: tuple[str, ...]


def ask(family: Family, prompt: ResponsePrompt, decoding: Decoding) -> Iterator[Asked]:
    """The three inputs of a family. Aliases belong to the source's own answer and to no other."""
    views: tuple[tuple[ViewKind, View, tuple[str, ...]], ...] = (
        (ViewKind.GOLD, family.gold, family.source.aliases),
        (ViewKind.EVIDENCE_CF, select_fixed_edit(family).view, ()),
        (ViewKind.QUESTION_CF, family.question_edit.view, ()),
    )
    for kind, view, aliases in views:
        messages = tuple(prompt.messages(view.question, view.evidence))
        yield Asked(family.id, kind, Request(messages, decoding), (view.answer, *aliases))


@dataclass(frozen=True, slots=True)
class Answered:
    """One reply as it came."""

    family_id: str
    view: ViewKind
    text: str
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, asked: Asked, reply: Reply) -> Answered:
        """A reply to what was asked."""
        usage = reply.usage
        return cls(asked.family_id, asked.view, reply.text, reply.finish, usage.prompt_tokens, usage.completion_tokens)

    @property
    def answer(self) -> str | None:
        """The submitted answer; None for an incomplete generation."""
        return parse_completion(self.text, cut_off=self.finish is not FinishReason.STOP).answer

    def correct(self, asked: Asked) -> bool:
        """Whether the answer is one of those that count; without an answer it is wrong."""
        return self.answer is not None and match_any_answer(self.answer, asked.accepted)


class Replies:
    """The file of all replies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for raw in read_objects(path) if path.exists() else ():
            if raw.value is None or not isinstance(raw.value.get("key"), str):
                problem = "is no reply of a selection. Move the file away to begin anew."
                raise raw.error or RecordError(problem, path=path, record=raw.where)
            self._lines[raw.value["key"]].append(raw.value)

    def find(self, key: str, asked: Sequence[Asked]) -> list[Answered] | None:
        """The replies under a key; None unless every input has its own."""
        found = [parse_record(Answered, line, extra="ignore") for line in self._lines.get(key, ())]
        same = [(one.family_id, one.view) for one in found] == [(one.family_id, one.view) for one in asked]
        return found if same else None

    def keep(self, key: str, checkpoint: str, asked: Sequence[Asked], answered: Sequence[Answered]) -> None:
        """Write the replies with what was made of them, so that a disagreement can be traced."""
        lines = [
            {
                "key": key,
                "checkpoint": checkpoint,
                **asdict(reply),
                "answer": reply.answer,
                "accepted": list(question.accepted),
                "correct": reply.correct(question),
            }
            for question, reply in zip(asked, answered, strict=True)
        ]
        if self._lines.get(key) == lines:
            return
        self._lines[key] = lines
        with AtomicFile(self.path) as file:
            for kept in self._lines.values():
                for line in kept:
                    file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")
