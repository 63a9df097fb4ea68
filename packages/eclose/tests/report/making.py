"""Judged responses whose truth is known, with everything a judge may add: quotes, reasons, missing evidence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from eclose.diagnosis.diagnose import Diagnosis, JudgedCase, diagnose_cases
from eclose.values.judgment import Criterion, Judgment, StepJudgment, StepSupport
from eclose.values.response import ResponseSource
from eclose.values.verdict import FailureClass
from eclose_world.faulty.broken_responses import FAILURE_PLANS, BrokenResponse, FailurePlan, break_response
from eclose_world.make.instances import WorldItem, make_world_items
from eclose_world.oracle.judge import judge_by_oracle

MODELS = {"atlas-70b": 0.78, "atlas-8b": 0.62, "brook-mini": 0.45, "cinder-32b-reasoner": 0.7}
"""How often each is reliable."""
BENCHMARKS = {"2wiki": "2wiki", "musique": "musique", "hotpot": "hotpot"}


def make_questions(count: int, seed: int = 1) -> list[WorldItem]:
    """Questions of three kinds in turn."""
    streams = [make_world_items(profile, seed) for profile in BENCHMARKS]
    return [next(stream) for stream in islice(cycle(streams), count)]


def make_cases(items: list[WorldItem], count: int, seed: int = 1) -> list[JudgedCase]:
    """Responses of several models to the questions, again and again until there are enough."""
    rng = Random(seed)
    cases: list[JudgedCase] = []
    for number in range(count):
        item = items[number // len(MODELS) % len(items)]
        model = list(MODELS)[number % len(MODELS)]
        cases.append(_case(item, model, number, rng))
    return cases


def _case(item: WorldItem, model: str, number: int, rng: Random) -> JudgedCase:
    broken = None
    while broken is None:
        broken = break_response(
            item, FailurePlan() if rng.random() < MODELS[model] else rng.choice(FAILURE_PLANS), f"{number}"
        )
    response = replace(broken.response, id=f"{item.instance.id}/{model}/{number}", source=ResponseSource(model))
    judgment = judge_by_oracle(item.instance, broken.response)
    return JudgedCase(item.instance, response, _enriched(replace(judgment, response_id=response.id), broken, item, rng))


def _enriched(judgment: Judgment, broken: BrokenResponse, item: WorldItem, rng: Random) -> Judgment:
    steps = tuple(
        _quoted(step, text, item) for step, text in zip(judgment.steps, broken.response.trace.texts, strict=True)
    )
    failure = judgment.verdict.failure_class
    lacking = int(re.sub(r"\D", "", item.instance.id) or 0) % 9 == 4
    judgment = replace(
        judgment,
        judge="judge-large-2026",
        steps=steps,
        reasons={
            Criterion.ALIGNMENT: "It sets out to answer what was asked."
            if judgment.aligned
            else "It answers something else.",
            Criterion.CLOSURE: "The last step states the answer." if judgment.closed else "No step yields this answer.",
        },
        pursued=f"something near it: {broken.response.trace.texts[-1]}"
        if failure is FailureClass.PATH_DEVIATION
        else None,
        established=item.instance.reference_answer if failure is FailureClass.ANSWER_DECOUPLING else None,
        evidence_sufficient=not lacking,
        missing_evidence="No passage tells the last link of the chain." if lacking else None,
    )
    if rng.random() < 0.02:
        judgment = replace(judgment, closed=None, unjudged={Criterion.CLOSURE: "refusal"})
    elif rng.random() < 0.01:
        judgment = replace(judgment, steps=(), unjudged={Criterion.LOCAL_SOUNDNESS: "wrong step ids"})
    return judgment


def _quoted(step: StepJudgment, text: str, item: WorldItem) -> StepJudgment:
    """A sentence instead of a whole passage, and a reason."""
    reason = None if step.sound is not False else "Nothing before it, and no passage, says so."
    if step.support is None:
        return replace(step, reason=reason)
    sentences = re.split(r"(?<=[.!?])\s+", step.support.quote)
    words = set(re.findall(r"\w+", text))
    best = max(sentences, key=lambda sentence: len(words & set(re.findall(r"\w+", sentence))))
    return replace(step, support=StepSupport(step.support.passage_index, best), reason=reason)


def make_diagnosis(cases: list[JudgedCase], resamples: int = 200) -> Diagnosis:
    return diagnose_cases(cases)


def run_in_processes(program: str) -> set[str]:
    """Return the outputs of a program in two processes that hash strings differently."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
