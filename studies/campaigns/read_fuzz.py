"""Random messages and texts: the reader ends with a reading or a named error, whatever it is given.

Texts are made of pieces of real layouts (markers, tags, fences, boxes, JSON, channels, logs, letters, scripts), objects
of keys that producers use, nested at random. Counted are inputs, readings and errors that name their cause; anything
else is a crash. The time of long texts, of one piece or of several that are repeated, must grow with their length
and not faster.

    python studies/campaigns/read_fuzz.py                                      # 2,000 inputs, 50 patterns
    python studies/campaigns/read_fuzz.py --inputs 100000 --patterns 1000
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.errors import UserError
from eclose.reading.response import read_response
from studies.perf.result import print_result

PIECES = (
    "Ada built it.", "She was born in Lund.", "Final answer: Lund", "Answer:", "**Answer:** x", "### Result",
    "So it is Lund.", "Let me search.", "Thought: a", "Action: search[x]", "Observation: y", "<think>",
    "</think>", "<answer>", "</answer>", "```json", "```", '{"answer": "x"', "}", "\\boxed{4", "}", "1. One.",
    "- two", "| a | b |", "|---|---|", "[1]", "TERMINATE", "<|channel|>final<|message|>",
    "<|im_start|>assistant", "[/INST]", "<p>", "</p>", "Dear Ms Berg,", "Kind regards,", "答案：隆德", "Ответ: Лунд",
    "الجواب: لوند", "उत्तर: लुंड", "\\[", "\\]", "$$", "Prediction(a=1, answer='x')", "reasoning:", "answer: x",
    "\u202e", "\ud83d", "\x00", "....", "\u2028", "(", '"', "“",
)  # fmt: skip
KEYS = (
    "role", "content", "text", "type", "messages", "output", "response", "answer", "reasoning", "tool_calls",
    "function", "arguments", "name", "parts", "choices", "message", "delta", "candidates", "kind", "steps",
    "thought", "observation", "data", "items", "from", "author", "events", "body", "error", "Role", "Items",
    "created_at", "finish_reason", "value",
)  # fmt: skip
WORDS = (
    "user", "assistant", "tool", "system", "text", "tool_use", "tool_result", "thinking", "length", "stop",
    "final_answer",
)  # fmt: skip
CHARACTERS = 20_000
LONGEST = 0.1
"""Seconds that ``CHARACTERS`` may take."""
STEEPEST = 3.0
"""How much longer twice the characters may take: 2 is linear, 4 is quadratic."""


def make_text(rng: Random) -> str:
    """Return pieces of layouts in random order."""
    return rng.choice((" ", "\n", "\n\n", "")).join(rng.choices(PIECES, k=rng.randint(0, 12)))


def make_value(rng: Random, depth: int = 0) -> Any:
    """Return a text, a number, a list or an object of keys that producers use."""
    draw = rng.random()
    if depth > 4 or draw < 0.3:
        return rng.choice(
            (make_text(rng), rng.choice(WORDS), None, True, rng.randint(-5, 5), 1.5, "", '{"answer": "x"}')
        )
    if draw < 0.55:
        return [make_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(KEYS): make_value(rng, depth + 1) for _ in range(rng.randint(0, 5))}


def read_all(inputs: int, seed: int) -> Counter[str]:
    """Return how many inputs ended in a reading, in an error with its cause, or in a crash."""
    outcomes = Counter[str]()
    for number in range(inputs):
        rng = Random(f"{seed}/{number}")
        response = make_text(rng) if number % 2 else make_value(rng)
        try:
            read_response(response, "Where was she born?")
            outcomes["readings"] += 1
        except UserError:
            outcomes["errors"] += 1
        except Exception as error:
            outcomes["crashes"] += 1
            print(f"input {number}: {type(error).__name__}: {str(error)[:100]}")
    return outcomes


def make_patterns(count: int, seed: int) -> set[str]:
    """Return every piece on lines of its own and in one line, and random rows of pieces."""
    rng = Random(f"{seed}/patterns")
    return {piece + end for piece in PIECES for end in (" ", "\n")} | {make_text(rng) + "\n" for _ in range(count)}


def time_pattern(pattern: str, characters: int) -> float:
    """Return the CPU seconds that a text of a repeated pattern takes."""
    text = (pattern * (characters // len(pattern) + 1))[:characters]
    begun = time.process_time()
    read_response(text, "Where was she born?")
    return time.process_time() - begun


def find_slowest(patterns: set[str]) -> tuple[float, str]:
    """Return the CPU seconds of the slowest pattern, and the pattern; the slowest are timed three times."""
    timed = sorted(patterns, key=lambda pattern: (time_pattern(pattern, CHARACTERS), pattern), reverse=True)[:10]
    return max((min(time_pattern(pattern, CHARACTERS) for _ in range(3)), pattern) for pattern in timed)


def find_steepest(patterns: set[str]) -> tuple[float, str]:
    """Return how much longer twice the characters take at most, and of which pattern.

    Of a first look with a quarter of the characters, the steepest are timed again at full length.
    """
    ratios = {
        pattern: time_pattern(pattern, CHARACTERS // 2) / max(time_pattern(pattern, CHARACTERS // 4), 1e-4)
        for pattern in patterns
    }
    steepest = (0.0, "")
    for pattern in sorted(ratios, key=lambda pattern: (ratios[pattern], pattern), reverse=True)[:20]:
        once, twice = (min(time_pattern(pattern, size) for _ in range(3)) for size in (CHARACTERS, 2 * CHARACTERS))
        steepest = max(steepest, (twice / max(once, 1e-4), pattern))
    return steepest


def main() -> int:
    """Print the outcomes and the slowest text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2_000, help="number of random inputs")
    parser.add_argument("--patterns", type=int, default=50, help="number of random patterns for long texts")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    outcomes = read_all(options.inputs, options.seed)
    patterns = make_patterns(options.patterns, options.seed)
    seconds, slowest = find_slowest(patterns)
    ratio, steepest = find_steepest(patterns)
    print(f"{outcomes['readings']:,} readings, {outcomes['errors']:,} errors that name their cause")
    print(f"slowest {CHARACTERS:,} characters of {len(patterns):,} patterns: {seconds:.3f} s of CPU, of {slowest!r}")
    print(f"twice the characters take at most {ratio:.1f} times as long, of {steepest!r}")
    return print_result(
        name="random inputs that crash the reader",
        value=outcomes["crashes"],
        unit=f"of {outcomes.total():,}; {CHARACTERS:,} characters in {seconds:.2f} s, twice as many {ratio:.1f} times",
        goal=f"= 0, <= {LONGEST} s, and <= {STEEPEST:g} times",
        holds=not outcomes["crashes"]
        and outcomes.total() == options.inputs
        and seconds <= LONGEST
        and ratio <= STEEPEST,
    )


if __name__ == "__main__":
    sys.exit(main())
