"""A question with its passages and, where known, its reference answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Passage:
    """A titled piece of evidence; prompts number passages by their position in the instance.

    Examples:
        >>> Passage("p1", "Moonstruck", "Moonstruck is a film by Norman Jewison.").title
        'Moonstruck'
    """

    id: str
    """Unique within its instance."""
    title: str
    text: str


# Without slots: ``cached_property`` needs the instance dictionary.
@dataclass(frozen=True)
class Instance:
    """A question with its evidence; the tuple (q, D, a*) of the paper.

    Examples:
        >>> passage = Passage("p1", "Moonstruck", "Moonstruck is a film by Norman Jewison.")
        >>> instance = Instance("q1", "Who directed Moonstruck?", (passage,), "Norman Jewison", aliases=("Jewison",))
        >>> instance.accepted_answers
        ('Norman Jewison', 'Jewison')
    """

    id: str
    question: str
    evidence: tuple[Passage, ...]
    reference_answer: str | None = None
    """None where no reference exists, as in a test split or in production traffic."""
    aliases: tuple[str, ...] = ()
    """Further accepted answers, without the reference itself."""
    benchmark: str | None = None
    support_ids: tuple[str, ...] | None = None
    """Ids of the passages that the benchmark marks as supporting; None where it marks none."""
    kind: str | None = None
    """Question type as the benchmark names it, such as ``bridge`` or ``compositional``."""
    hops: int | None = None
    """Number of reasoning steps by the benchmark's count."""

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
        """Number of whitespace-separated words in all passage texts."""
        return sum(len(passage.text.split()) for passage in self.evidence)


UNKNOWN_DATASET = "unknown"
"""Dataset name of families without a benchmark."""


def dataset_of_benchmark(benchmark: str | None) -> str:
    """Return the dataset under which families of a benchmark are counted."""
    return benchmark or UNKNOWN_DATASET
