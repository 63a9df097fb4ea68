"""Settings of construction, and the stages a source goes through."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from eclose.calls.model import Decoding
from eclose.errors import SettingError
from eclose.values.identity import content_hash
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    ROLE_REPLY_SCHEMAS,
    ConstructionRole,
    role_guideline_hash,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ATTEMPTS = 3
"""Largest number of attempts: repeating until a verifier accepts selects for errors that verifiers miss."""


class ConstructionStage(StrEnum):
    """Stages of construction in their order; also the names of a run's jobs in the ledger."""

    SCREEN = "screen"
    TARGET = "target"
    EVIDENCE = "evidence"
    QUESTION = "question"
    PACK = "pack"
    REVERIFY = "reverify"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructSettings:
    """Settings of a construction run; all of them determine requests, so all belong to the run's identity."""

    edits: int = 2
    """Most evidence edits of a family; one is enough."""
    attempts: int = 1
    """Most attempts at a part; each after the first is shown the objections to the one before."""
    replies: int = 2
    """How often a model is asked until its reply matches the schema."""
    max_tokens: int = 4096
    """Longest reply in tokens."""
    temperature: float = 0.0
    seed: int = 42
    """Sampling seed sent with requests, so that a repeated request draws another reply."""
    reverify: bool = True
    """Whether every check of a finished family is repeated with a newly drawn reply."""
    reverify_temperature: float = 0.7
    """Temperature of the second check; at zero the same model would only repeat its reply."""
    max_length: int = 8_192
    """Longest path in tokens, prompt and response. No path is truncated."""
    tokenizer: str | None = None
    """Folder or name of the model whose tokens are counted; None for an estimate that errs on the high side."""

    def __post_init__(self) -> None:
        if min(self.edits, self.attempts, self.replies, self.max_tokens, self.max_length) < 1:
            raise SettingError("edits, attempts, replies, max_tokens and max_length must be at least one.")
        if self.attempts > MOST_ATTEMPTS:
            raise SettingError(f"attempts: at most {MOST_ATTEMPTS}; every further one selects for lenient checks.")

    @property
    def decoding(self) -> Decoding:
        """Decoding of construction and of the first check."""
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed)

    @property
    def second_decoding(self) -> Decoding:
        """Decoding of the second check."""
        return replace(self.decoding, temperature=self.reverify_temperature)

    @property
    def stages(self) -> tuple[ConstructionStage, ...]:
        """Stages of a run with these settings."""
        return tuple(stage for stage in ConstructionStage if self.reverify or stage is not ConstructionStage.REVERIFY)

    @property
    def identity(self) -> dict[str, Any]:
        """Settings and hashes of the guidelines, for manifests."""
        return asdict(self) | {"guidelines": dict(hash_role_guidelines())}


@cache
def hash_role_guidelines() -> Mapping[str, str]:
    """Return for every role a hash of its guideline, reply schema and acceptance conditions."""
    # All three decide what a model is asked or what is accepted, so a change of any is another run.
    return {
        str(role): content_hash([role_guideline_hash(role), ROLE_REPLY_SCHEMAS[role], ACCEPTANCE_CONDITIONS.get(role)])
        for role in ConstructionRole
    }
