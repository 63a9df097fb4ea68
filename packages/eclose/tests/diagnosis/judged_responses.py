"""Judged responses for tests: random labels with every kind of gap, and broken responses of the world."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

from eclose.diagnosis.run_counts import RunCounts
from eclose.readers.judged_run import JudgedCase, JudgedCaseSet
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment, LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle

LABELS = (True, True, True, False, None)
REASONS = ("no usable reply: cut off", "no usable reply: not JSON", "there is no trace")
TIMES = ("2026-11-20T10:00:00Z", "2026-11-21T09:00:00.5Z", None, "last week")
MODELS = ("openai/gpt-5", "judge/small", "m", None)


def random_cases(seed, count=400, questions=60):
    """Return cases with missing labels, missing names, repeated questions, votes and failure codes."""
    random = Random(seed)
    instances = [
        Instance(
            f"q{number // 2}",
            f"Question {number}?",
            (Passage("0", "", "Arica."),),
            random.choice(("Arica", "Lima", None)),
            aliases=("the port",),
            benchmark=("HotpotQA", "MuSiQue", "unknown", None)[number % 4],
        )
        for number in range(questions)
    ]
    return [_random_case(random, random.choice(instances), number) for number in range(count)]


def _random_case(random, instance, number):
    model = random.choice(MODELS)
    answer = random.choice(("Arica", "the port", "Oslo", None))
    texts = random.choice(((), ("Arica is a port.",), ("x", "y", "z")))
    source = ResponseSource(model) if model else None
    response = Response(f"r{number}", instance.id, Trace.of(*texts), answer, source, time=TIMES[number % len(TIMES)])
    steps = tuple(
        StepJudgment(True, False, random.choice((*LocalFailure, None)))
        if random.random() < 0.2
        else StepJudgment(True, random.choice((True, True, None)))
        for _ in texts
    )
    labels = {name: random.choice(LABELS) for name in ("aligned", "closed", "complete", "correct")}
    unjudged = {criterion: random.choice(REASONS) for criterion in Criterion if random.random() < 0.1}
    votes = {"L": (True, False, None), "evidence": (True, True)} if random.random() < 0.2 else {}
    judge = random.choice(("openai/gpt-5-mini", "j"))
    evidence = random.choice(LABELS)
    judgment = Judgment(
        response.id,
        judge,
        steps,
        **labels,
        unjudged=unjudged,
        votes=votes,
        evidence_sufficient=evidence,
        abstained=random.random() < 0.15,
    )
    return JudgedCase(instance, response, judgment)


def world_cases(world, items=8):
    """Return broken responses of a world, judged by its oracle, several for each question."""
    cases = []
    for item in islice(make_world_items(world, 1), items):
        for plan in (FailurePlan(), *Random(item.seed).sample(FAILURE_PLANS, 5)):
            if (broken := break_response(item, plan, f"r{len(cases)}")) is not None:
                response = replace(broken.response, id=f"r{len(cases)}")
                judgment = replace(judge_by_oracle(item.instance, response), response_id=response.id)
                cases.append(JudgedCase(item.instance, response, judgment))
    return cases


def make_case(row):
    """Return a case with the ids and the labels of a settled verdict."""
    verdict = row.verdict
    labels = {name: getattr(verdict, name) for name in ("aligned", "closed", "complete", "correct")}
    judgment = Judgment(row.response_id, "j", (StepJudgment(True, verdict.locally_sound),), **labels)
    response = Response(row.response_id, row.instance_id, Trace(()), None, row.source)
    return JudgedCase(Instance(row.instance_id, "?", (), benchmark=row.benchmark), response, judgment)


def hold_cases(cases, *, left_out=()):
    """Return the labels of cases, of a run that left some responses out."""
    counts = RunCounts.of(cases)
    run = counts.runs[""]._replace(caveats=JudgedCaseSet((), left_out=tuple(left_out)))
    return replace(counts, runs={"": run})
