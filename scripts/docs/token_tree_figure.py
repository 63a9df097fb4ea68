"""Picture of the prefix tree of a family: chains of tokens as boxes, with the scores that end in each.

The family is the first of the world's profile ``short-easy``, in tokens of SmolLM2-135M.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from eclose_train.families.comparisons import Edge
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.prefix_tree import ROOT, PrefixTree
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.spans import TokenPart
from eclose_world.make.families import make_world_families

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eclose_train.likelihood.spans import SpanScore

PROFILE, SEED = "short-easy", 42
BOX_HEIGHT, ROW_HEIGHT, GAP = 34, 44, 26
TOP, MARGIN = 74, 16
COLUMNS = (184, 184, 214, 186, 214, 132)
"""Widths of the levels of the tree in pixels."""
CHARACTER_WIDTH = 6.9


class Palette(NamedTuple):
    """Colours of a picture."""

    background: str
    text: str
    muted: str
    line: str
    prompt: str
    trace: str
    answer: str


LIGHT = Palette("#ffffff", "#1b1f24", "#59636e", "#afb8c1", "#eef1f4", "#dbeafe", "#d5f0dc")
DARK = Palette("#0d1117", "#e6edf3", "#9da7b3", "#4d5662", "#21262d", "#1b3a63", "#17452a")


@dataclass
class Chain:
    """Tokens without a branch: their number, text, part, level in the tree and the scores that end in them."""

    count: int
    text: str
    part: TokenPart
    level: int
    parent: Chain | None
    scores: list[str] = field(default_factory=list)
    children: list[Chain] = field(default_factory=list)
    row: float = 0.0


def make_scores(tokenizer: Any) -> list[SpanScore]:
    """Return the fifteen scores of the family."""
    family = next(make_world_families(PROFILE, SEED))
    scores = FamilyScores(family, family.evidence_edits[0], TokenPathRenderer(tokenizer))
    return [*scores.anchors(), *scores.comparisons()]


def build_chains(scores: Sequence[SpanScore], tokenizer: Any) -> list[Chain]:
    """Return the chains of the tree in depth-first order, each with its row in the picture."""
    tree = PrefixTree()
    nodes = [tree.insert(score.path.ids) for score in scores]
    layout, rows = tree.layout()
    parts = {
        int(rows[node]): part for score, path in zip(scores, nodes, strict=True) for node, part in _pair(score, path)
    }
    names: dict[int, list[str]] = defaultdict(list)
    for score, path in zip(scores, nodes, strict=True):
        names[int(rows[path[-1]])].append(score.name)
    chains: list[Chain] = []
    ends: dict[int, Chain] = {}
    for start, stop, _ in layout.segments:
        above = int(layout.parent[start])
        parent = None if above == ROOT else ends[above]
        chain = Chain(
            stop - start,
            " ".join(tokenizer.decode(layout.ids[start:stop].tolist()).split()),
            parts[start],
            0 if parent is None else parent.level + 1,
            parent,
            [name for row in range(start, stop) for name in names[row]],
        )
        ends[stop - 1] = chain
        if parent is not None:
            parent.children.append(chain)
        chains.append(chain)
    _place_rows(chains)
    return chains


def _pair(score: SpanScore, path: list[int]) -> list[tuple[int, TokenPart]]:
    return [(node, part) for node, (part, _) in zip(path, score.path.parts, strict=True)]


def _place_rows(chains: Sequence[Chain]) -> None:
    """Give each leaf a row of its own, and each other chain the middle of its children."""
    leaves = 0
    for chain in chains:
        if not chain.children:
            chain.row, leaves = float(leaves), leaves + 1
    for chain in reversed(chains):
        if chain.children:
            chain.row = (chain.children[0].row + chain.children[-1].row) / 2


def draw_tree(scores: Sequence[SpanScore], chains: Sequence[Chain], palette: Palette) -> str:
    """Return the picture as SVG."""
    lefts = [MARGIN + sum(COLUMNS[:level]) + GAP * level for level in range(len(COLUMNS))]
    width = lefts[-1] + COLUMNS[-1] + MARGIN
    height = TOP + ROW_HEIGHT * (1 + max(chain.row for chain in chains)) + MARGIN
    single = sum(len(score.path.ids) for score in scores)
    title = (
        f"{len(scores)} scores of a family: {single:,} tokens one by one, {sum(c.count for c in chains):,} on the tree"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" role="img" aria-label="{escape(title)}"'
        ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" rx="8" fill="{palette.background}"/>',
        f'<text x="{MARGIN}" y="28" font-size="16" font-weight="600" fill="{palette.text}">{escape(title)}</text>',
        *_draw_legend(palette),
    ]
    for chain in chains:
        lines += _draw_chain(chain, lefts, palette)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _draw_legend(palette: Palette) -> list[str]:
    lines, left = [], MARGIN
    entries = (("prompt", palette.prompt), ("reasoning", palette.trace), ("answer", palette.answer))
    for name, colour in entries:
        lines.append(
            f'<rect x="{left}" y="42" width="14" height="14" rx="3" fill="{colour}" stroke="{palette.line}"/>'
            f'<text x="{left + 20}" y="53" fill="{palette.muted}">{name}</text>'
        )
        left += 40 + 7 * len(name)
    note = f"bold: the scores that end in a box ({', '.join(edge.value for edge in Edge)}: edges; + preferred, - not)"
    lines.append(f'<text x="{left + 10}" y="53" fill="{palette.muted}">{escape(note)}</text>')
    return lines


def _draw_chain(chain: Chain, lefts: Sequence[float], palette: Palette) -> list[str]:
    colours = {TokenPart.PROMPT: palette.prompt, TokenPart.ANSWER: palette.answer}
    left, width = lefts[chain.level], COLUMNS[chain.level]
    middle = TOP + ROW_HEIGHT * chain.row + ROW_HEIGHT / 2
    top = middle - BOX_HEIGHT / 2
    lines = []
    if chain.parent is not None:
        start = lefts[chain.parent.level] + COLUMNS[chain.parent.level]
        above = TOP + ROW_HEIGHT * chain.parent.row + ROW_HEIGHT / 2
        bend = (start + left) / 2
        lines.append(
            f'<path fill="none" stroke="{palette.line}" stroke-width="1.5" d="M{start:.0f} {above:.0f}'
            f' C{bend:.0f} {above:.0f} {bend:.0f} {middle:.0f} {left:.0f} {middle:.0f}"/>'
        )
    text = _shorten(chain.text, int((width - 14) / CHARACTER_WIDTH))
    lines += [
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width}" height="{BOX_HEIGHT}" rx="5"'
        f' fill="{colours.get(chain.part, palette.trace)}" stroke="{palette.line}"/>',
        f'<text x="{left + 7:.0f}" y="{top + 14:.0f}" fill="{palette.text}">{escape(text)}</text>',
        f'<text x="{left + 7:.0f}" y="{top + 28:.0f}" font-size="10.5" fill="{palette.muted}">'
        f"{chain.count:,} token{'s' if chain.count > 1 else ''}</text>",
    ]
    if chain.scores:
        names = ", ".join(name.replace("anchor ", "") for name in chain.scores)
        lines.append(
            f'<text x="{left + width - 7:.0f}" y="{top + 28:.0f}" text-anchor="end" font-size="10.5" font-weight="600"'
            f' fill="{palette.text}">{escape(names)}</text>'
        )
    return lines


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
