"""Scores of a family that an objective or a switch test needs: three anchors and both sides of six comparisons.

Together fifteen scores over nine paths and three prompts (appendix D.3). The prefix tree finds which tokens they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.values.family import EvidenceEdit, Family, ViewKind
from eclose.values.response import Trace
from eclose_train.families.comparisons import ALL_COMPARISONS, Comparison, Direction, Edge
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.spans import ScoredTokens, SpanScore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.family import View
    from eclose_train.likelihood.spans import TokenPath


def anchor_score_name(kind: ViewKind) -> str:
    """Return the name of the score of a view's response under the view's own input."""
    return f"anchor {kind.value}"


def comparison_side_name(edge: Edge, direction: Direction, *, preferred: bool) -> str:
    """Return the name of one side of a comparison: ``S.o+`` is the preferred step under the original evidence."""
    return f"{edge.value}.{direction.value}{'+' if preferred else '-'}"


def response_score_name(prompt: ViewKind, response: ViewKind) -> str:
    """Return the name of the score of one view's complete response under another view's input."""
    return f"response {response.value} under {prompt.value}"


@dataclass(frozen=True)
class FamilyScores:
    """The scores of a family with one of its evidence edits."""

    family: Family
    edit: EvidenceEdit
    renderer: TokenPathRenderer
    tokens: ScoredTokens = ScoredTokens.FULL

    def _views(self) -> dict[ViewKind, View]:
        return {
            ViewKind.GOLD: self.family.gold,
            ViewKind.EVIDENCE_CF: self.edit.view,
            ViewKind.QUESTION_CF: self.family.question_edit.view,
        }

    def anchors(self, kinds: Iterable[ViewKind] = tuple(ViewKind)) -> list[SpanScore]:
        """Return the score of each view's response under its own input."""
        return [self._response(anchor_score_name(kind), kind, kind) for kind in kinds]

    def responses(self, pairs: Iterable[tuple[ViewKind, ViewKind]]) -> list[SpanScore]:
        """Return the scores of complete responses; a pair is (view of the input, view of the response)."""
        return [self._response(response_score_name(prompt, response), prompt, response) for prompt, response in pairs]

    def comparisons(self, comparisons: Iterable[Comparison] = ALL_COMPARISONS) -> list[SpanScore]:
        """Return the scores of both sides of each comparison, the preferred side first."""
        return [self._side(comparison, preferred=side) for comparison in comparisons for side in (True, False)]

    def _response(self, name: str, prompt: ViewKind, response: ViewKind) -> SpanScore:
        view = self._views()[response]
        path = self._path(prompt, prompt, view.trace, view.answer)
        return SpanScore(name, path, path.response_positions(self.tokens))

    def _side(self, comparison: Comparison, *, preferred: bool) -> SpanScore:
        view = self._views()[comparison.preferred if preferred else comparison.dispreferred]
        name = comparison_side_name(comparison.edge, comparison.direction, preferred=preferred)
        # Appendix C.2: a support edge scores the first affected step after the gold prefix, an alignment edge the
        # trace, a closure edge the answer after a fixed trace.
        if comparison.edge is Edge.SUPPORT:
            first = self.edit.first_affected_step  # both traces agree before it, so the prefix is shared
            prefix = self.family.gold.trace.steps[:first]
            trace = Trace((*prefix, view.trace.steps[first]))
            path = self._path(comparison.question, comparison.evidence, trace)
            return SpanScore(name, path, path.step_positions(first))
        if comparison.edge is Edge.ALIGNMENT:
            path = self._path(comparison.question, comparison.evidence, view.trace)
            return SpanScore(name, path, path.trace_positions())
        assert comparison.trace is not None  # every closure edge fixes a trace
        trace = self._views()[comparison.trace].trace
        path = self._path(comparison.question, comparison.evidence, trace, view.answer)
        return SpanScore(name, path, path.answer_positions())

    def _path(self, question: ViewKind, evidence: ViewKind, trace: Trace, answer: str | None = None) -> TokenPath:
        views = self._views()
        return self.renderer.render(views[question].question, views[evidence].evidence, trace, answer)
