"""Growth of the tree's time and memory with the context length and with the families of a step.

Families are made of random tokens in the shape real ones have: three inputs that differ in one passage or in the
question, traces of five steps, fifteen scores. The model is the wide layer of `tree_cost.py`, under the same settings.
Fifteen sequences are one measured sequence times fifteen.

Memory is to be linear in tokens: there is no mask of all pairs. A token costs 2 x 47M operations in the layer's
matrices and 4 x 2,048 for every token it sees: some 2k of them with 1k tokens of context, 11k with 16k, which makes it
1.7 times as dear. The goal is twice that, for attention is slower per operation than matrices are. A kernel that looked
at all pairs of the tree would look at 26k.

    python studies/perf/tree_growth.py                  the claim
    python studies/perf/tree_growth.py --plot folder    and two figures (needs matplotlib)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from pathlib import Path as File
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose_train.likelihood.prefix_tree import ScoredTree
from eclose_train.likelihood.score import AttentionBackend, score_tree
from eclose_train.likelihood.spans import SpanScore, TokenPart, TokenPath
from studies.perf.result import print_result
from studies.perf.tree_cost import Work, build, lengths, peak_of

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXTS = (1_024, 2_048, 4_096, 8_192, 16_384)
FAMILIES = (1, 2, 4, 8)
INSTRUCTIONS = 1_000
"""Tokens all families begin with: system prompt and worked examples."""
VOCABULARY = 4_096
TIME_GOAL, MEMORY_GOAL = 3.5, 1.25


@dataclass(frozen=True)
class Point:
    """Measurement at one size: seconds and bytes of a step on the tree, seconds of fifteen sequences."""

    at: int
    tokens: int
    seconds: float
    peak: int
    fifteen: float

    def __str__(self) -> str:
        """Return a line of the table."""
        time, memory = 1e3 * self.seconds / self.tokens, self.peak / self.tokens / 2**10
        return (
            f"{self.at:>7,} {self.tokens:>8,} tokens {self.seconds:8.2f} s {time:6.2f} ms/token "
            f"{self.peak / 2**20:8,.0f} MiB {memory:6.0f} KiB/token; fifteen {self.fifteen:8.1f} s"
        )


class Tokens:
    """Source of random tokens."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def some(self, count: int) -> list[int]:
        return [self._rng.randrange(VOCABULARY) for _ in range(count)]


def family(tokens: Tokens, before: list[int], context: int) -> list[SpanScore]:
    """Make fifteen scores in the shape of a family: evidence first, edited in its middle."""
    half = tokens.some(context // 2)
    evidence, edited = half + tokens.some(context // 2), half + tokens.some(context // 2)
    question, other = tokens.some(35), tokens.some(35)
    gold = [tokens.some(22) for _ in range(5)]
    changed = gold[:2] + [tokens.some(22) for _ in range(3)]
    turned = [tokens.some(22) for _ in range(5)]
    answers = {"gold": tokens.some(8), "changed": tokens.some(8), "turned": tokens.some(8)}
    inputs = {
        "o": before + evidence + question,
        "e": before + edited + question,
        "q": before + evidence + other,
    }
    scores: list[SpanScore] = []

    def add(input_name: str, steps: list[list[int]], answer: str | None, scored: int) -> None:
        ids = inputs[input_name] + [token for step in steps for token in step] + (answers[answer] if answer else [])
        positions = tuple(range(len(ids) - scored, len(ids)))
        scores.append(SpanScore(str(len(scores)), TokenPath(tuple(ids), ((TokenPart.STEP, 0),) * len(ids)), positions))

    for input_name, steps, answer in (("o", gold, "gold"), ("e", changed, "changed"), ("q", turned, "turned")):
        add(input_name, steps, answer, 118)
    for input_name, steps in (("o", gold), ("o", changed), ("e", changed), ("e", gold)):
        add(input_name, steps[:3], None, 22)
    for input_name, steps in (("o", gold), ("o", turned), ("q", turned), ("q", gold)):
        add(input_name, steps, None, 110)
    for steps, answer in ((gold, "gold"), (gold, "changed"), (changed, "changed"), (changed, "gold")):
        add("o", steps, answer, 8)
    return scores


def scores_of(families: int, context: int) -> list[SpanScore]:
    tokens = Tokens(0)
    before = tokens.some(INSTRUCTIONS)
    return [score for _ in range(families) for score in family(tokens, before, context)]


def seconds_of(model: Any, tree: ScoredTree, backend: AttentionBackend | None, rounds: int) -> float:
    """Return the median seconds of the rounds."""
    times = []
    for _ in range(rounds):
        model.zero_grad()
        start = perf_counter()
        score_tree(model, tree, backend).sum().backward()  # type: ignore[no-untyped-call]
        times.append(perf_counter() - start)
    return statistics.median(times)


def measure(model: Any, at: int, scores: list[SpanScore], rounds: int) -> Point:
    tree = ScoredTree.of(scores)
    longest = max(scores, key=lambda score: score.positions[-1])
    plain = seconds_of(model, ScoredTree.of([longest]), None, rounds)
    per_sequence = plain * sum(lengths(scores)) / (longest.positions[-1] + 1)
    peak = peak_of("wide", "sum", Work(scores, []), "")
    point = Point(at, len(tree.layout), seconds_of(model, tree, AttentionBackend.COLUMNS, rounds), peak, per_sequence)
    print(point, flush=True)
    return point


def plot(points: Sequence[Point], file: File, label: str) -> None:
    """Plot time and memory side by side; the same numbers give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - only for the figures
    import matplotlib.pyplot as plt  # noqa: PLC0415

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "eclose", "svg.fonttype": "none", "font.size": 9}
    figure, (time, memory) = plt.subplots(1, 2, figsize=(7.5, 3))
    at = [point.at for point in points]
    time.plot(at, [point.fifteen for point in points], "s--", color="0.6", label="fifteen sequences (one x 15)")
    time.plot(at, [point.seconds for point in points], "o-", color="C0", label="tree")
    memory.plot(at, [point.peak / 2**30 for point in points], "o-", color="C0")
    time.legend(frameon=False)
    time.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds per step")
    time.set_xticks(at, [f"{value:,}" for value in at])
    time.minorticks_off()
    # Straight axes: memory is to be a straight line.
    memory.set(xlabel=label, ylabel="GiB a step grows memory by", xlim=(0, None), ylim=(0, None))
    memory.set_xticks(
        [value for value in at if value >= at[-1] / 4], [f"{value:,}" for value in at if value >= at[-1] / 4]
    )
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=File, help="a folder for the figures")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--families", type=int, nargs="+", default=FAMILIES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    model = build("wide", "", options.threads)
    seconds_of(model, ScoredTree.of(scores_of(1, 256)), AttentionBackend.COLUMNS, 1)  # warm
    print("tokens of context, one family")
    by_context = [measure(model, context, scores_of(1, context), options.rounds) for context in options.contexts]
    print("families of 1,024 tokens of context in one step")
    by_families = [measure(model, count, scores_of(count, CONTEXTS[0]), options.rounds) for count in options.families]
    if options.plot:
        options.plot.mkdir(parents=True, exist_ok=True)
        plot(by_context, options.plot / "tree_growth_context.svg", "tokens of context")
        plot(by_families, options.plot / "tree_growth_families.svg", "families per step")
    first, last = by_context[0], by_context[-1]
    slower = (last.seconds / last.tokens) / (first.seconds / first.tokens)
    fatter = (last.peak / last.tokens) / (first.peak / first.tokens)
    holds = slower <= TIME_GOAL and fatter <= MEMORY_GOAL
    return print_result(
        name=f"tree time per token at {last.at:,} tokens of context",
        value=round(slower, 2),
        unit=f"x that at {first.at:,}; memory per token {fatter:.2f} x",
        goal=f"<= {TIME_GOAL} and memory <= {MEMORY_GOAL}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
