"""Lexical features of the support head: a step against the sentences of its evidence."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from eclose.detection.verifier.features import Features, share
from eclose.detection.verifier.lexicon import CONTRASTS
from eclose.detection.verifier.words import FUNCTION_WORDS, TextWords, collect_words, parse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.core.instance import Passage

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"(])")
_BEST_PASSAGES = 2
"""Passages whose sentences are read for a step; the others only say whether a word occurs."""
_CACHED_EVIDENCE = 32
"""Bodies of evidence kept; responses to one question are usually neighbours."""


class _PassageWords:
    """The words of a passage and of its sentences, in lower case."""

    def __init__(self, passage: Passage) -> None:
        self.title = passage.title
        self._text = passage.text
        self.words = collect_words(f"{passage.title} {passage.text}")

    @cached_property
    def sentences(self) -> list[tuple[str, set[str]]]:
        """Sentences with their words; those of the title count too, since a sentence often names it by a pronoun."""
        title = collect_words(self.title)
        # On demand: most passages of a long context are the best of no step.
        return [(sentence, title | collect_words(sentence)) for sentence in _SENTENCE_END.split(self._text)]


class EvidenceIndex:
    """The words of passages. Only the best sentence for a step is parsed: most of a long context never is."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = [_PassageWords(passage) for passage in passages]
        self.words = set[str]().union(*(passage.words for passage in self._passages))

    def find_best_sentence(self, claim: TextWords) -> tuple[TextWords, TextWords]:
        """Return the sentence that shares most with a claim and the title of its passage; empty texts without any."""
        content_words = set(claim.words) - FUNCTION_WORDS
        specific = claim.names | set(claim.numbers)
        # Names and numbers count twice: they tell passages about the same relation apart.
        hits = [
            (len(content_words & passage.words) + len(specific & passage.words), -number)
            for number, passage in enumerate(self._passages)
        ]
        best, best_score = ("", ""), 0
        for _, number in sorted(hits, reverse=True)[:_BEST_PASSAGES]:
            passage = self._passages[-number]
            for sentence, words in passage.sentences:
                score = len(content_words & words) + len(specific & words)
                if score > best_score:
                    best, best_score = (passage.title, sentence), score
        title, sentence = best
        return parse_text(sentence), parse_text(title)


@lru_cache(maxsize=_CACHED_EVIDENCE)
def index_evidence(passages: tuple[Passage, ...]) -> EvidenceIndex:
    """Return the index of a body of evidence."""
    return EvidenceIndex(passages)


def support_features(index: EvidenceIndex, step: str) -> Features:
    """Return the features of a step and its evidence."""
    claim = parse_text(step)
    numbers = set(claim.numbers)
    specific = claim.names | numbers
    sentence, title = index.find_best_sentence(claim)
    here = sentence.content | title.content
    here_names = sentence.names | title.names | set(sentence.numbers)
    missing = claim.concepts - sentence.concepts
    return {
        "step words in the best sentence": share(claim.content, here),
        "step names in the best sentence": share(claim.names, here_names),
        "step numbers in the best sentence": share(numbers, here_names),
        "names and numbers in the best sentence": share(specific, here_names),
        "all names and numbers in the best sentence": float(specific <= here_names),
        "step names in the evidence": share(claim.names, index.words),
        "step numbers in the evidence": share(numbers, index.words),
        "step words in the evidence": share(set(claim.words) - FUNCTION_WORDS, index.words),
        "step relations in the best sentence": share(claim.concepts, sentence.concepts),
        "contrasting relation in the best sentence": float(
            any(CONTRASTS.get(concept, frozenset()) & sentence.concepts for concept in missing)
        ),
        "conclusion word in the step": float(claim.concludes),
    }


def find_evidence_steps(question: str, steps: Sequence[str]) -> list[str]:
    """Return the steps that bring a name or number which is neither in the question nor in an earlier step.

    The others conclude from what was said before: evidence need not state them, and they would count as unsupported.
    Where no step brings anything, all are returned.
    """
    question_words = parse_text(question)
    earlier = set(question_words.names)
    values = set(question_words.numbers)
    bringing = []
    for step in steps:
        words = parse_text(step)
        if not words.names <= earlier or not _follow_from(words.numbers, values):
            bringing.append(step)
        earlier |= words.names
        values.update(words.numbers)
    return bringing or list(steps)


def _follow_from(numbers: Sequence[str], values: set[str]) -> bool:
    """Return whether every number is a known one or the difference of two of them."""
    new = [float(number) for number in numbers if number not in values]
    if not new:
        return True
    earlier = {float(value) for value in (*values, *numbers)}
    return all(any(value + number in earlier for value in earlier if value > number) for number in new)
