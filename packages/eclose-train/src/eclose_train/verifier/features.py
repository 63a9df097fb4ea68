"""Lexical features of the alignment and the closure head.

Every feature is named in a few words, so that the weights of a verifier can be read. The functions for alignment take
no answer, and those for closure no evidence.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from eclose_train.verifier.words import (
    CONTRASTS,
    FUNCTION_WORDS,
    TextWords,
    agrees_with_comparison,
    agrees_with_difference,
    agrees_with_sameness,
    collect_words,
    parse_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from eclose.values.instance import Passage

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


Features = dict[str, float]

SHORTCUT_FEATURES = ("number of steps", "conclusion word in the last step")
"""Features of form alone. They separate many failures from reliable traces where these follow one style."""

_QUESTION_TYPES = {
    "who": "name", "whom": "name", "whose": "name", "where": "name", "when": "time", "year": "time", "date": "time",
    "day": "time", "many": "number", "much": "number",
}  # fmt: skip
_YES_NO_OPENERS = frozenset(
    ("is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "can", "could", "will")
)
_MONTHS = frozenset(
    ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
     "december")
)  # fmt: skip


def share(part: Set[str], whole: Set[str], *, empty: float = 1.0) -> float:
    """Return the share of ``part`` that ``whole`` contains; ``empty`` where there is nothing to contain."""
    return len(part & whole) / len(part) if part else empty


def parse_claims(question_words: TextWords, steps: Sequence[str]) -> list[TextWords]:
    """Return the parsed steps without those that only repeat what to look for; all of them where no other is left."""
    trace = [parse_text(step) for step in steps]
    return [step for step in trace if not (step.states_goal and step.names <= question_words.names)] or trace


def _holds(relation: Sequence[str], relations: Set[str]) -> float:
    """Return whether a relation, given as a sequence of one or none, is among others."""
    return float(not relation or relation[0] in relations)


def alignment_features(question: str, steps: Sequence[str]) -> Features:
    """Return the features of a question and a trace of at least one step."""
    question_words = parse_text(question)
    trace = parse_claims(question_words, steps)
    last = trace[-1]
    content = frozenset().union(*(step.content for step in trace))
    names = frozenset().union(*(step.names for step in trace))
    concepts = frozenset().union(*(step.concepts for step in trace))
    numbers = {number for step in trace for number in step.numbers}
    common_words = question_words.content - question_words.names
    missing = question_words.concepts - concepts
    mistaken = frozenset().union(*(CONTRASTS.get(concept, frozenset()) for concept in missing))
    easily_mistaken = frozenset().union(*(CONTRASTS.get(concept, frozenset()) for concept in question_words.concepts))
    foreign = last.concepts - question_words.concepts
    new_names = last.names - question_words.names
    return {
        "question words in the trace": share(question_words.content, content),
        "question words in the last step": share(question_words.content, last.content),
        "question words in the best step": max(share(question_words.content, step.content) for step in trace),
        "question words in the first step": share(question_words.content, trace[0].content),
        "trace words in the question": share(content, question_words.content, empty=0),
        "last step words in the question": share(last.content, question_words.content, empty=0),
        "first step words in the question": share(trace[0].content, question_words.content, empty=0),
        "question names in the trace": share(question_words.names, names),
        "question names in the last step": share(question_words.names, last.names),
        "question names in the first step": share(question_words.names, trace[0].names),
        "all question names in the trace": float(question_words.names <= names),
        "first step names in the question": share(trace[0].names, question_words.names, empty=0),
        "question numbers in the trace": share(set(question_words.numbers), numbers),
        "question relations in the trace": share(question_words.concepts, concepts),
        "question relations in the last step": share(question_words.concepts, last.concepts),
        "trace relations in the question": share(concepts, question_words.concepts),
        "last step relations in the question": share(last.concepts, question_words.concepts),
        "first question relation in the trace": _holds(question_words.relations[:1], concepts),
        "last question relation in the trace": _holds(question_words.relations[-1:], concepts),
        "first question relation in the last step": _holds(question_words.relations[:1], last.concepts),
        "last question relation in the last step": _holds(question_words.relations[-1:], last.concepts),
        "question relations missing in the trace": float(min(len(missing), 3)),
        "relation mistaken in the trace": float(bool(mistaken & concepts)),
        "relation mistaken in the last step": float(bool(mistaken & foreign)),
        "contrasting relation in the last step": float(bool(easily_mistaken & foreign)),
        "common question words in the trace": share(common_words, content),
        "direction of the last step": float(question_words.direction * last.direction),
        "expected type in the last step": _type_in_step(question_words, last, new_names),
        "sameness answered in the last step": _sameness(question_words, last),
        "new names in the last step": share(last.names, question_words.names),
        "steps linked to the question": _linked_steps(question_words, trace),
        "question words in a middle step": max(
            (share(question_words.content, step.content) for step in trace[1:-1]), default=0.0
        ),
        "number of steps": min(len(trace), 12) / 12,
        "conclusion word in the last step": float(last.concludes),
    }


def question_type(question_words: TextWords) -> str | None:
    """Return the type of answer that a question asks for: name, time, number or yes-no; None where it is open."""
    words = question_words.words
    if words and words[0] in _YES_NO_OPENERS:
        return "yes-no"
    # The first word that decides: "in which year", "how many people", "who".
    return next((_QUESTION_TYPES[word] for word in words[:6] if word in _QUESTION_TYPES), None)


def _has_time(text: TextWords) -> bool:
    return any(len(number) == 4 for number in text.numbers) or not _MONTHS.isdisjoint(text.words)


def _type_in_step(question_words: TextWords, last: TextWords, new_names: frozenset[str]) -> float:
    """Return 1 where the last step has something of the type asked for, -1 where it has not, 0 where that is open."""
    match question_type(question_words):
        case "time":
            present = _has_time(last)
        case "number":
            present = bool(last.numbers)
        case "name":
            present = bool(new_names)
        case _:
            return 0.0
    return 1.0 if present else -1.0


def _sameness(question_words: TextWords, last: TextWords) -> float:
    """Return whether the last step speaks of sameness where the question asks for it, and only there."""
    if question_type(question_words) != "yes-no" and "same" not in question_words.words:
        return -float(last.polarity != 0 and ("same" in last.words or "different" in last.words))
    return float(last.polarity != 0)


def _linked_steps(question_words: TextWords, trace: Sequence[TextWords]) -> float:
    earlier, linked = set(question_words.names), 0
    for step in trace:
        linked += not step.names or not earlier.isdisjoint(step.names)
        earlier |= step.names
    return linked / len(trace)


def closure_features(question: str, steps: Sequence[str], answer: str) -> Features:
    """Return the features of a question, a trace of at least one step, and an answer."""
    question_words, answer_text = parse_text(question), parse_text(answer)
    trace = parse_claims(question_words, steps)
    last = trace[-1]
    # The words of an answer that count; all of them where only fillers are left.
    words = frozenset(answer_text.words) - _FILLERS or frozenset(answer_text.words)
    coverage = [share(words, set(step.words), empty=0) for step in trace]
    polar = _answer_polarity(answer_text)
    newest = _newest_words(question_words, trace)
    names = frozenset().union(*(step.names for step in trace))
    concepts = frozenset().union(*(step.concepts for step in trace))
    everything = frozenset().union(*(step.words for step in trace))
    stated = 0.0 if polar else coverage[-1]
    return {
        "answer words in the last step": stated,
        "answer words in the trace": 0.0 if polar else share(words, everything, empty=0),
        "answer words in the best step": 0.0 if polar else max(coverage),
        "answer words in the last two steps": 0.0 if polar else max(coverage[-2:]),
        "answer words among the newest": 0.0 if polar else share(words, newest, empty=0),
        "answer complete in the last step": float(not polar and coverage[-1] == 1),
        "answer complete in an earlier step only": float(not polar and coverage[-1] < 1 and 1 in coverage),
        "answer in the question": 0.0 if polar else share(words, set(question_words.words), empty=0),
        "names of the last step beside answer and question": (
            len(last.names - question_words.names - words) / len(last.names) if last.names else 0.0
        ),
        "polarity of the last step": float(polar * last.polarity),
        "yes or no answer": float(bool(polar)),
        "sameness of the values": float(agrees_with_sameness(question_words, question, steps, polar)),
        "order of the values": float(agrees_with_comparison(question_words, question, steps, words)),
        "difference of the values": float(agrees_with_difference(trace, answer_text)),
        "type of the answer": _type_of_answer(question_words, answer_text, polar),
        "question names in the trace": share(question_words.names, names),
        "question relations in the trace": share(question_words.concepts, concepts),
        "first question relation in the trace": _holds(question_words.relations[:1], concepts),
        "last question relation in the trace": _holds(question_words.relations[-1:], concepts),
        "last step denies": float(not polar and last.polarity < 0),
        "number of steps": min(len(trace), 12) / 12,
        "conclusion word in the last step": float(last.concludes),
    }


_FILLERS = frozenset(("the", "a", "an", "answer", "is", "final", "in", "on", "of", "it", "was", "to", "by", "and"))


def _answer_polarity(answer_text: TextWords) -> int:
    """Return 1 for yes, -1 for no, 0 for any other answer."""
    words = [word for word in answer_text.words if word not in _FILLERS]
    return {"yes": 1, "no": -1}.get(words[0], 0) if words else 0


def _newest_words(question_words: TextWords, trace: Sequence[TextWords]) -> set[str]:
    """Return the names and numbers that the last step with news mentions for the first time."""
    earlier, newest = question_words.names | set(question_words.numbers), set[str]()
    for step in trace:
        mentioned = set(step.names) | set(step.numbers)
        if step.numbers:
            mentioned |= _MONTHS.intersection(step.words)
        if not mentioned <= earlier:
            newest = mentioned - earlier
            earlier = earlier | mentioned
    return newest


def _type_of_answer(question_words: TextWords, answer_text: TextWords, polar: int) -> float:
    """Return 1 where the answer is of the type asked for, -1 where it is not, 0 where that is open."""
    match question_type(question_words):
        case "yes-no":
            # "Is it A or B?" is answered by a name.
            fits = bool(polar) or "or" in question_words.words
        case "time":
            fits = _has_time(answer_text)
        case "number":
            fits = bool(answer_text.numbers)
        case "name":
            fits = bool(answer_text.names) or not answer_text.numbers
        case _:
            return -float(bool(polar))
    return 1.0 if fits else -1.0
