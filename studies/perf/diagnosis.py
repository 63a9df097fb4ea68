"""Time to diagnose the paper's 33,774 responses with every interval; the goal is less than half a minute.

Responses come from the world, broken in every way, over three datasets and nine models; as many of each as it takes.
Reading files is not in it, counting and resampling are.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.diagnosis.diagnose import JudgedCase, diagnose_cases
from eclose.values.response import ResponseSource
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

RESPONSES, QUESTIONS, MODELS = 33_774, 900, 9
BENCHMARKS = ("2WikiMultiHopQA", "MuSiQue", "HotpotQA")
GOAL = 30.0


def judge_examples() -> Iterator[JudgedCase]:
    """Yield a few hundred different cases, each judged once."""
    for item in islice(make_world_items("short-easy", 1), 60):
        for plan in (FailurePlan(), *Random(item.seed).sample(FAILURE_PLANS, 6)):
            if (broken := break_response(item, plan, "x")) is not None:
                judgment = replace(judge_by_oracle(item.instance, broken.response), evidence_sufficient=True)
                yield JudgedCase(item.instance, broken.response, judgment)


def make_cases() -> list[JudgedCase]:
    """Repeat the examples up to ``RESPONSES`` cases, each with its own id, dataset and model."""
    numbered = []
    for number, case in enumerate(islice(cycle(list(judge_examples())), RESPONSES)):
        question = number % QUESTIONS
        instance = replace(case.instance, id=f"q{question}", benchmark=BENCHMARKS[question % 3])
        source = ResponseSource(f"model-{number // QUESTIONS % MODELS}")
        response = replace(case.response, id=f"r{number}", instance_id=instance.id, source=source)
        numbered.append(JudgedCase(instance, response, replace(case.judgment, response_id=response.id)))
    return numbered


def main() -> int:
    cases = make_cases()
    start = time.perf_counter()
    diagnosis = diagnose_cases(cases)
    seconds = time.perf_counter() - start
    overall = diagnosis.overall
    print(f"{overall.responses:,} responses, {overall.questions:,} questions, {len(diagnosis.groups)} groups")
    return print_result(
        name=f"diagnosis of {RESPONSES:,} responses with all intervals",
        value=round(seconds, 1),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=seconds < GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
