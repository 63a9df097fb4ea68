"""Detectors on an entailment model: closure (trace against answer) and support (passages against each step).

Nothing is truncated. A premise that is too long is read in windows or leaves the response without a score.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from eclose.detectors.entailment_models import EncodedPair, EntailmentModel, EntailmentModelRef
from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.errors import RecordError
from eclose.values.segmentation import split_sentences
from eclose.values.three_valued import Label

if TYPE_CHECKING:
    from eclose.readers.response_tasks import ResponseTask


BATCH_TOKENS = 16_384
"""Largest number of tokens of a batch, padding included."""


@dataclass(frozen=True, slots=True)
class StepLabels:
    """Which steps of a response are substantive, by one judge."""

    judge: str
    substantive: tuple[Label, ...]
    """One label for each step; empty where the judge labelled none."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The pairs that a detector needs for a response, and how their scores become the score of the response."""

    pairs: tuple[EncodedPair, ...]
    conclude: Callable[[Sequence[float]], DetectorScore]


def score_pairs_by_length(
    model: EntailmentModel, pairs: Sequence[EncodedPair], batch_tokens: int = BATCH_TOKENS
) -> list[float]:
    """Return the score of each pair, in order; pairs of similar length share a batch, and equal pairs are scored once.

    A pair with more than ``batch_tokens`` is a batch of its own.
    """
    # Longest first: a batch that does not fit into memory fails at once and not after hours. Equal lengths are sorted
    # by content, so that batches do not depend on the order of the pairs.
    waiting = sorted(set(pairs), key=lambda pair: (-len(pair), pair.ids, pair.segments or ()))
    scores: dict[EncodedPair, float] = {}
    while waiting:
        size = max(1, batch_tokens // len(waiting[0]))
        batch, waiting = waiting[:size], waiting[size:]
        scores |= zip(batch, model.score_batch(batch), strict=True)
    return [scores[pair] for pair in pairs]


_StepPairs: TypeAlias = list[list[list[int]]]
"""The numbers of the pairs of a step: by passage, then by hypothesis, then by window."""
_LINE = re.compile(r"[^\r\n]+")
_WORD = re.compile(r"\S+")
_CITATION = re.compile(r"\s*\[\d+(?:\s*[,;–-]\s*\d+)*\]")


def split_into_windows(text: str, fits: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the windows of a text, in order; all characters except blanks between windows are in exactly one.

    Windows end at the end of a sentence or line; a sentence that is too long ends at a word, and a text without blanks
    at a character. Where not even one character fits, there is no window.

    >>> split_into_windows("Ada built it. She was born in Lund.", lambda piece: len(piece) < 25)
    ('Ada built it.', 'She was born in Lund.')
    """
    text = text.strip()
    if fits(text):
        return (text,)
    # The coarsest cut that fits is taken: a sentence that is torn apart may mean something else.
    cuts = (_find_sentence_ends(text), [match.end() for match in _WORD.finditer(text)], range(1, len(text) + 1))
    windows: list[str] = []
    start = 0
    while start < len(text):
        ends = (_find_last_fit(text, start, positions, fits) for positions in cuts)
        end = next((end for end in ends if end is not None), None)
        if end is None:
            return ()
        if piece := text[start:end].strip():
            windows.append(piece)
        start = end
    return tuple(windows)


def _find_sentence_ends(text: str) -> list[int]:
    """Return the index after each sentence; a line break ends a sentence as well."""
    ends = []
    for line in _LINE.finditer(text):
        end = line.start()
        for sentence in split_sentences(line[0]):
            # Sentences are pieces of their line, so each is found after the one before it.
            end = text.index(sentence, end) + len(sentence)
            ends.append(end)
    return ends


def _find_last_fit(text: str, start: int, ends: Sequence[int], fits: Callable[[str], bool]) -> int | None:
    """Return the last of the given ends up to which the text after ``start`` fits; None where it fits to none."""
    first = bisect_right(ends, start)
    # Doubled before it is halved: testing the rest of a long text each time would take quadratic time.
    last, step = first - 1, 1
    while (number := last + step) < len(ends) and fits(text[start : ends[number]].strip()):
        last, step = number, step * 2
    while step := step // 2:
        if (number := last + step) < len(ends) and fits(text[start : ends[number]].strip()):
            last = number
    return ends[last] if last >= first else None


class PremiseTooLongError(Exception):
    """A premise that is too long for its hypothesis and is not read in windows, or fits into none."""


@dataclass
class PairCollector:
    """The pairs of one response, with the windows of premises that are too long."""

    model: EntailmentModel
    windowed: bool
    pairs: list[EncodedPair] = field(default_factory=list)
    split_premises: int = 0
    """Number of premises that needed more than one window."""

    def add(self, premise: str, hypothesis: str) -> range:
        """Add a premise with its hypothesis; return the numbers of its pairs."""
        limit = self.model.token_limit
        pair = self.model.encode_pair(premise, hypothesis)
        pairs = [pair]
        if len(pair) > limit:

            def fits(window: str) -> bool:
                return len(self.model.encode_pair(window, hypothesis)) <= limit

            windows = split_into_windows(premise, fits) if self.windowed else ()
            pairs = [self.model.encode_pair(window, hypothesis) for window in windows]
            self.split_premises += 1
        if not pairs:
            raise PremiseTooLongError
        self.pairs += pairs
        return range(len(self.pairs) - len(pairs), len(self.pairs))


@dataclass(frozen=True, kw_only=True)
class ClosureDetector:
    """Closure: the probability that the trace entails the submitted answer to the question.

    The score depends on the question as well, so it may also reflect alignment.
    """

    model: EntailmentModelRef
    windowed: bool = False
    """Whether a trace that is too long is read in windows. Off: no single window need entail what the trace does."""
    kind: ClassVar[DetectorKind] = DetectorKind.CLOSURE
    needs_step_labels: ClassVar[bool] = False

    @property
    def identity(self) -> dict[str, Any]:
        """Model and settings, for the manifest of a run."""
        return {"detector": self.kind.value, **self.model.identity, "windowed": self.windowed}

    def plan_pairs(
        self,
        task: ResponseTask,
        labels: StepLabels | None,  # noqa: ARG002
        model: EntailmentModel,
    ) -> PairPlan | DetectorScore:
        """Return the pair of trace and answer, or a record without a score where there is no trace or answer."""
        response = task.response
        explain = partial(DetectorScore, response_id=response.id, detector=self.kind, model=model.name, score=None)
        if not response.trace.steps:
            return explain(unscored=Unscored.NO_TRACE)
        if response.answer is None:
            return explain(unscored=Unscored.NO_ANSWER)
        premise = "\n".join(response.trace.texts)
        hypothesis = f"the answer to {task.instance.question} is {response.answer}"
        tokens = len(model.encode_pair(premise, hypothesis))
        collector = PairCollector(model, self.windowed)
        try:
            collector.add(premise, hypothesis)
        except PremiseTooLongError:
            return explain(unscored=Unscored.TOO_LONG, details={"tokens": tokens, "limit": model.token_limit})

        def conclude(probabilities: Sequence[float]) -> DetectorScore:
            return DetectorScore(
                response_id=response.id,
                detector=self.kind,
                model=model.name,
                score=max(probabilities),
                details={"tokens": tokens, "windows": len(probabilities), "probabilities": list(probabilities)},
            )

        return PairPlan(tuple(collector.pairs), conclude)


@dataclass(frozen=True, kw_only=True)
class StepSupportDetector:
    """Support of the steps by the evidence: the mean over substantive steps of the maximum over passages."""

    model: EntailmentModelRef
    titles: bool = True
    """Whether the title of a passage is part of the premise; the paper does not say."""
    strip_citations: bool = False
    """Whether marks such as [0] are removed from steps; the paper does not say."""
    windowed: bool = True
    """Whether a passage that is too long is read in windows, of which the best one counts."""
    kind: ClassVar[DetectorKind] = DetectorKind.STEP_SUPPORT
    needs_step_labels: ClassVar[bool] = True
    method: ClassVar[str] = "step against passage"

    @property
    def identity(self) -> dict[str, Any]:
        """Model and settings, for the manifest of a run."""
        return {
            "detector": self.kind.value,
            **self.model.identity,
            "method": self.method,
            "titles": self.titles,
            "strip_citations": self.strip_citations,
            "windowed": self.windowed,
        }

    def split_step(self, text: str) -> Sequence[str]:
        """Return the hypotheses of a step, whose scores are averaged."""
        return (text,)

    def split_passage(self, text: str) -> Sequence[str]:
        """Return the premises of a passage, of which the best one counts."""
        return (text,)

    def plan_pairs(
        self, task: ResponseTask, labels: StepLabels | None, model: EntailmentModel
    ) -> PairPlan | DetectorScore:
        """Return the pairs of substantive steps and passages, or a record without a score.

        Raises:
            RecordError: The labels are about another number of steps.
        """
        response = task.response
        record = partial(DetectorScore, response_id=response.id, detector=self.kind, model=model.name)
        if not response.trace.steps:
            return record(score=None, unscored=Unscored.NO_TRACE)
        if labels is None or not labels.substantive:
            return record(score=None, unscored=Unscored.NO_STEP_LABELS)
        notes = _describe_labels(response.id, labels, len(response.trace))
        numbers = [number for number, label in enumerate(labels.substantive) if label]
        if not numbers:
            # An undecided step may be substantive, so a trace with one is not known to have none.
            reason = Unscored.NO_STEP_LABELS if notes["undecided_steps"] else Unscored.NO_SUBSTANTIVE_STEP
            return record(score=None, unscored=reason, details=notes)
        collector = PairCollector(model, self.windowed)
        passages = [
            self.split_passage(f"{passage.title}\n{passage.text}".strip() if self.titles else passage.text)
            for passage in task.instance.evidence
        ]
        cells = []
        for number in numbers:
            try:
                cells.append(self._add_step(collector, response.trace.texts[number], passages))
            except PremiseTooLongError:
                details = {**notes, "step": number + 1, "limit": model.token_limit}
                return record(score=None, unscored=Unscored.TOO_LONG, details=details)

        def conclude(probabilities: Sequence[float]) -> DetectorScore:
            steps = [
                {"step": number + 1, **_summarise_step(cell, probabilities)}
                for number, cell in zip(numbers, cells, strict=True)
            ]
            scores = [step["score"] for step in steps]
            counts = {"pairs": len(collector.pairs), "split_premises": collector.split_premises}
            details = {**notes, "steps": steps, "minimum": min(scores), **counts}
            return record(score=min(1.0, fmean(scores)), details=details)

        return PairPlan(tuple(collector.pairs), conclude)

    def _add_step(self, collector: PairCollector, step: str, passages: Sequence[Sequence[str]]) -> _StepPairs:
        """Add the pairs of a step with every passage, and return their numbers."""
        text = _CITATION.sub("", step).strip() if self.strip_citations else step
        # A step of nothing but a mark keeps it: an empty hypothesis says nothing.
        hypotheses = self.split_step(text or step)
        return [
            [
                [number for premise in premises for number in collector.add(premise, hypothesis)]
                for hypothesis in hypotheses
            ]
            for premises in passages
        ]


LocalDetector: TypeAlias = ClosureDetector | StepSupportDetector
"""A detector whose model runs in this process."""


def _summarise_step(table: _StepPairs, probabilities: Sequence[float]) -> dict[str, Any]:
    """Return the score of a step and the number of the passage that gives it, counted from zero."""
    scores = [fmean(max(probabilities[pair] for pair in pairs) for pairs in row) for row in table]
    best = max(range(len(scores)), key=scores.__getitem__)
    return {"score": scores[best], "passage": best}


def _describe_labels(response_id: str, labels: StepLabels, steps: int) -> dict[str, Any]:
    """Return whose labels were used and how many steps they leave out; raise where they do not fit the trace."""
    if len(labels.substantive) != steps:
        raise RecordError(
            f"{labels.judge} labelled {len(labels.substantive)} steps, and the response has {steps}. Judge it again.",
            record=repr(response_id),
        )
    counts = {
        "not_substantive_steps": labels.substantive.count(False),
        "undecided_steps": labels.substantive.count(None),
    }
    return {"step_labels": labels.judge, **counts}
