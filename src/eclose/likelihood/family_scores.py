"""A family as the scores an objective or a switch test needs: three anchors, and both sides of six comparisons.

Fifteen scores, nine paths, three prompts. Which of them share tokens is for the tree to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.edges import COMPARISONS, Comparison, Direction, Edge
from eclose.core.family import EvidenceEdit, Family, ViewKind
from eclose.core.response import Trace
from eclose.likelihood.render import Renderer
from eclose.likelihood.spans import Score, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.family import View
    from eclose.likelihood.spans import Path


def anchor_name(kind: ViewKind) -> str:
    """The score of a view's own response under its own input."""
    return f"anchor {kind.value}"


def side_name(edge: Edge, direction: Direction, *, preferred: bool) -> str:
    """One side of a comparison: ``S.o+`` is the preferred step under the original evidence."""
    return f"{edge.value}.{direction.value}{'+' if preferred else '-'}"


def response_name(asked: ViewKind, given: ViewKind) -> str:
    """The score of one view's whole response under another's input."""
    return f"response {given.value} under {asked.value}"


@dataclass(frozen=True)
class Pack:
    """A family with one of its evidence edits, ready to be rendered."""

    family: Family
    edit: EvidenceEdit
    renderer: Renderer
    tokens: Tokens = Tokens.FULL

    def _views(self) -> dict[ViewKind, View]:
        return {
            ViewKind.GOLD: self.family.gold,
            ViewKind.EVIDENCE_CF: self.edit.view,
            ViewKind.QUESTION_CF: self.family.question_edit.view,
        }

    def anchors(self, kinds: Iterable[ViewKind] = tuple(ViewKind)) -> list[Score]:
        """Each view's response under its own input."""
        found = []
        for kind in kinds:
            path = self._path(kind, kind, self._views()[kind].trace, self._views()[kind].answer)
            found.append(Score(anchor_name(kind), path, path.response(self.tokens)))
        return found

    def responses(self, pairs: Iterable[tuple[ViewKind, ViewKind]]) -> list[Score]:
        """Whole responses under given inputs: (input's view, response's view)."""
        found = []
        for asked, given in pairs:
            view = self._views()[given]
            path = self._path(asked, asked, view.trace, view.answer)
            found.append(Score(response_name(asked, given), path, path.response(self.tokens)))
        return found

    def comparisons(self, kept: Iterable[Comparison] = COMPARISONS) -> list[Score]:
        """Both sides of each comparison."""
        return [self._side(comparison, preferred=preferred) for comparison in kept for preferred in (True, False)]

    def _side(self, comparison: Comparison, *, preferred: bool) -> Score:
        view = self._views()[comparison.preferred if preferred else comparison.dispreferred]
        name = side_name(comparison.edge, comparison.direction, preferred=preferred)
        if comparison.edge is Edge.SUPPORT:
            first = self.edit.first_affected_step
            prefix = self.family.gold.trace.steps[:first]
            trace = Trace((*prefix, view.trace.steps[first]))
            path = self._path(comparison.question, comparison.evidence, trace)
            return Score(name, path, path.step(first))
        if comparison.edge is Edge.ALIGNMENT:
            path = self._path(comparison.question, comparison.evidence, view.trace)
            return Score(name, path, path.trace())
        assert comparison.trace is not None
        trace = self._views()[comparison.trace].trace
        path = self._path(comparison.question, comparison.evidence, trace, view.answer)
        return Score(name, path, path.answer())

    def _path(self, question: ViewKind, evidence: ViewKind, trace: Trace, answer: str | None = None) -> Path:
        views = self._views()
        return self.renderer.path(views[question].question, views[evidence].evidence, trace, answer)
