"""What is asked: a question, the passages given with it, and the reference answer if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of evidence. Its place in the instance is its original index."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Instance:
    """A question with its evidence; the tuple (q, D, a*) of the paper."""

    id: str
    question: str
    evidence: tuple[Passage, ...]
    reference_answer: str | None = None
    """None where no reference exists: a test split, or a user's own traffic."""
    aliases: tuple[str, ...] = ()
    """Other accepted answers, without the reference itself."""
    benchmark: str | None = None
    support_ids: tuple[str, ...] | None = None
    """Passages the benchmark marks as supporting; None where it does not say."""
    kind: str | None = None
    """The benchmark's own question type, such as ``bridge`` or ``compositional``."""
    hops: int | None = None

    @cached_property
    def passage_ids(self) -> frozenset[str]:
        """The ids of all passages."""
        return frozenset(passage.id for passage in self.evidence)

    @property
    def accepted_answers(self) -> tuple[str, ...]:
        """The reference and its aliases; empty without a reference."""
        return () if self.reference_answer is None else (self.reference_answer, *self.aliases)

    @property
    def context_words(self) -> int:
        """Whitespace-delimited words of all passage texts."""
        return sum(len(passage.text.split()) for passage in self.evidence)
