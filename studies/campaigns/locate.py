"""How often a model finds the answer's sentence in prose that does not mark it, beside always taking first or last.

Each case has a reply, its question, and the sentence that is the answer. Cases whose answer the reader finds by itself
are left out and counted; the others are asked as the judge asks them, in the call about alignment.

    python studies/campaigns/locate.py MODEL --base-url http://127.0.0.1:8080/v1 CASES.jsonl ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.api.resolve import resolve
from eclose.calls.structured import ask_structured
from eclose.judging.settings import JudgeSettings
from eclose.prompts.disclosure import LocatingMaterial
from eclose.prompts.judge_questions import build_judge_prompt, check_answer_step
from eclose.prompts.material_json import disclose_steps
from eclose.values.response import Trace
from studies.perf.result import print_result
from tests.readers.read_shapes import predict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.calls.model import ChatModel

SECONDS = 600.0
REPLY_TOKENS = 400
"""A small model that repeats itself would write until the judge's own limit; such a reply names no sentence."""


class UnlocatedCase(NamedTuple):
    """A reply in prose whose answer no word marks."""

    id: str
    material: LocatingMaterial
    answer: int
    """Number of the sentence that is the answer."""


def read_cases(paths: Iterable[Path]) -> tuple[list[UnlocatedCase], Counter[str]]:
    """Return the cases to ask about, and how many others were left out and why."""
    cases, left_out = [], Counter[str]()
    for line in (line for path in paths for line in path.read_text("utf-8").splitlines()):
        case = json.loads(line)
        prediction, expected = predict(case), case["expected"]
        steps = prediction["steps"]
        answers = [number for number, step in enumerate(steps, 1) if step in (expected["answer"], *expected["accept"])]
        if prediction["status"] != "trace" or prediction["located"] or len(steps) < 2:
            left_out["the reader finds the answer, or there is no trace"] += 1
        elif len(answers) != 1:
            left_out["no sentence, or several, are the answer"] += 1
        else:
            material = LocatingMaterial(case["question"], disclose_steps(Trace.of(*steps)))
            cases.append(UnlocatedCase(case["id"], material, answers[0]))
    return cases, left_out


async def ask(model: ChatModel, case: UnlocatedCase, settings: JudgeSettings) -> tuple[int | None, str]:
    """Return the sentence that the model names, and why there is none."""
    answer = await ask_structured(
        model,
        build_judge_prompt(case.material),
        partial(check_answer_step, case.material),
        decoding=replace(settings.decoding, max_tokens=REPLY_TOKENS),
        attempts=settings.attempts,
    )
    return (None, answer.problem or answer.reason) if answer.reason else (answer.value["answer_step"], "names none")


async def ask_all(name: str, base_url: str | None, cases: list[UnlocatedCase]) -> Counter[str]:
    """Return how many answers were found, missed and not named, and print the latter two."""
    outcomes, settings = Counter[str](), JudgeSettings()
    async with resolve(name, base_url, keyless=True).open(deadline=SECONDS, concurrency=1) as model:
        for case in cases:
            number, problem = await ask(model, case, settings)
            outcome = "found" if number == case.answer else "not named" if number is None else "missed"
            outcomes[outcome] += 1
            note = "" if outcome == "found" else f": sentence {case.answer}, {number or problem}"
            print(f"{case.id}, {len(case.material.steps)} sentences, {outcome}{note}", flush=True)
    return outcomes


def main() -> int:
    """Print the outcome of every case, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--base-url")
    parser.add_argument("cases", type=Path, nargs="+")
    options = parser.parse_args()
    cases, left_out = read_cases(options.cases)
    outcomes = asyncio.run(ask_all(options.model, options.base_url, cases))
    first = sum(case.answer == 1 for case in cases)
    last = sum(case.answer == len(case.material.steps) for case in cases)
    print(f"{len(cases)} cases; left out: {dict(left_out)}")
    print(f"{options.model}: {dict(outcomes)}; always the first sentence: {first}; always the last: {last}")
    return print_result(
        name="answers of prose that a judge locates",
        value=round(outcomes["found"] / len(cases), 3),
        unit=f"of {len(cases)} replies",
        goal=f"> {max(first, last) / len(cases):.3f}, the better of always first and always last",
        holds=outcomes["found"] > max(first, last),
        not_named=outcomes["not named"],
        model=options.model,
    )


if __name__ == "__main__":
    sys.exit(main())
