"""Random messages and texts: the reader ends with a reading or a named error, whatever it is given.

Texts are made of pieces of real layouts (markers, tags, fences, boxes, JSON, channels, logs, letters, scripts), objects
of keys that producers use, nested at random. Counted are inputs, readings and errors that name their cause; anything
else is a crash. The time of long texts of one repeated piece must grow with their length and not faster.

    python studies/campaigns/read_fuzz.py                  # 2,000 inputs
    python studies/campaigns/read_fuzz.py --inputs 100000
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
LONGEST = 0.1
"""Seconds that 20,000 characters may take."""


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


def measure_slowest(characters: int) -> tuple[float, str]:
    """Return the CPU seconds of the slowest text of one repeated piece, and the piece."""
    slowest = (0.0, "")
    for piece in PIECES:
        for separator in (" ", "\n"):
            text = separator.join([piece] * (characters // (len(piece) + 1) + 1))[:characters]
            begun = time.process_time()
            read_response(text, "Where was she born?")
            slowest = max(slowest, (time.process_time() - begun, piece))
    return slowest


def main() -> int:
    """Print the outcomes and the slowest text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2_000, help="number of random inputs")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    outcomes = read_all(options.inputs, options.seed)
    seconds, piece = measure_slowest(20_000)
    print(f"{outcomes['readings']:,} readings, {outcomes['errors']:,} errors that name their cause")
    print(f"slowest 20,000 characters: {seconds:.3f} s of CPU, of {piece!r}")
    return print_result(
        name="random inputs that crash the reader",
        value=outcomes["crashes"],
        unit=f"of {outcomes.total():,}; 20,000 characters in {seconds:.2f} s",
        goal=f"= 0, and <= {LONGEST} s",
        holds=not outcomes["crashes"] and outcomes.total() == options.inputs and seconds <= LONGEST,
    )


if __name__ == "__main__":
    sys.exit(main())
