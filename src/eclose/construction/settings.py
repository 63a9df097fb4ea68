"""How families are built."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from eclose.core.identity import content_hash
from eclose.errors import SettingError
from eclose.models.interface import Decoding
from eclose.protocol.acceptance import WANTED
from eclose.protocol.construction import SCHEMAS, Role, guideline_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ATTEMPTS = 3
"""Trying again until somebody says yes selects for what verifiers let pass, so it ends soon."""


class Part(StrEnum):
    """What is built, one after the other; also the jobs of a run."""

    SCREEN = "screen"
    TARGET = "target"
    EVIDENCE = "evidence"
    QUESTION = "question"
    PACK = "pack"
    REVERIFY = "reverify"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructSettings:
    """All of it decides what is asked, so all of it belongs to a run's identity."""

    edits: int = 2
    """Edits of the evidence at most; one is enough for a family."""
    attempts: int = 1
    """How often a part is built; every one after the first is told what was said against the one before."""
    replies: int = 2
    """How often the same is asked of a model that answers in no usable form."""
    max_tokens: int = 4096
    temperature: float = 0.0
    seed: int = 42
    """Sent along, so that whoever is asked once more draws anew."""
    reverify: bool = True
    """Whether a finished family is held against every check once more, by a reply drawn anew."""
    reverify_temperature: float = 0.7
    """Of the second check: without any, the same model would only say the same again."""
    max_length: int = 8_192
    """Longest path in tokens, prompt and response. Nothing is cut to fit."""
    tokenizer: str | None = None
    """Whose tokens are counted: a model's folder or name. None estimates, rather high than low."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if min(self.edits, self.attempts, self.replies, self.max_tokens, self.max_length) < 1:
            raise SettingError("edits, attempts, replies, max_tokens and max_length are at least one.")
        if self.attempts > MOST_ATTEMPTS:
            raise SettingError(f"attempts: at most {MOST_ATTEMPTS}; every further one selects for lenient checks.")

    @property
    def decoding(self) -> Decoding:
        """As the models are told."""
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed)

    @property
    def second_decoding(self) -> Decoding:
        """As whoever checks once more is told."""
        return replace(self.decoding, temperature=self.reverify_temperature)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a source goes through."""
        return tuple(part for part in Part if self.reverify or part is not Part.REVERIFY)

    @property
    def identity(self) -> dict[str, Any]:
        """For manifests: the settings and what every role is told."""
        return asdict(self) | {"guidelines": dict(guidelines())}


@cache
def guidelines() -> Mapping[str, str]:
    """What every role is told, how it must reply and what is wanted of it, by hash."""
    return {str(role): content_hash([guideline_hash(role), SCHEMAS[role], WANTED.get(role)]) for role in Role}
