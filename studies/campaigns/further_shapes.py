"""Responses in sixty shapes that the rules of the reader were not made from: how many are read wholly right.

The cases were written by hands that had seen no rule: other frameworks, products, languages and domains, with the
right reading by principles alone. A reading is whole where its status, its steps and its answer are right; texts are
compared by their letters, digits and signs of calculation.

    python studies/campaigns/further_shapes.py
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from studies.perf.result import print_result
from tests.readers.read_shapes import predict

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = Path(__file__).parents[2] / "packages/eclose/tests/fixtures/shapes/further.jsonl"
GOAL = 0.9
_SIGNS = frozenset("%€$=+×−<>/^-")


def normalize(text: str) -> str:
    """Return the letters, digits and signs of a text, without case."""
    folded = re.sub(r"(?<=\d)[.,](?=\d)", "+", unicodedata.normalize("NFKC", text).casefold())
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LNM" or char in _SIGNS)


def is_whole(case: dict[str, Any], prediction: dict[str, Any]) -> bool:
    """Return whether a prediction has the right status, steps and answer; no response may be refused."""
    expected = case["expected"]
    refused = expected["status"] == "not_a_response" and prediction["status"] == "refused"
    if prediction["status"] != expected["status"] and not refused:
        return False
    if [normalize(step) for step in prediction["steps"]] != [normalize(step) for step in expected["steps"]]:
        return False
    if expected["answer"] is None:
        return prediction["answer"] is None or prediction["status"] in ("abstained", "refused")
    answers = {normalize(answer) for answer in (expected["answer"], *expected["accept"])}
    return prediction["located"] and prediction["answer"] is not None and normalize(prediction["answer"]) in answers


def read_cases() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield every case with its prediction."""
    for line in CASES.read_text("utf-8").splitlines():
        case = json.loads(line)
        yield case, predict(case)


def main() -> int:
    """Print the shares by how a case is decided, and the wrong readings."""
    whole, cases = Counter[str](), Counter[str]()
    for case, prediction in read_cases():
        decidable = case["expected"]["decidable"]
        cases[decidable] += 1
        if is_whole(case, prediction):
            whole[decidable] += 1
        else:
            print(f"{case['id']}: {prediction['status']}, {prediction['note'][:90]}")
    for rule, number in cases.items():
        print(f"decidable by {rule}: {whole[rule]} of {number} whole")
    share = whole.total() / cases.total()
    return print_result(
        name="further shapes read wholly right",
        value=round(share, 3),
        unit=f"of {cases.total()} responses",
        goal=f">= {GOAL}",
        holds=share >= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
