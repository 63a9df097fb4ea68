"""Long traces judged whole: steps of which some are planted wrong, judged over HTTP in windows.

Questions of the world get traces of many steps: true facts of their passages in random order, and at random positions
the same facts with the value of another entity. The world's judge is asked over HTTP with the default settings. Every
planted step must be found unsound, every other one sound, and no reply schema may ask for more steps than a window.

    python studies/campaigns/long_traces.py                 # 2 questions for each length
    python studies/campaigns/long_traces.py --questions 20
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.ledger.ledger import Ledger
from eclose.judging.judge_response import build_judge_requests, judge_response
from eclose.judging.settings import JudgeSettings
from eclose.values.instance import Instance
from eclose.values.response import Response, Trace
from eclose_world.language.claims import FactClaim
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.steps import TraceStepWriter
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import open_model_server
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.judgment import Judgment

LENGTHS = (50, 150, 300)
PLANTED_SHARE = 0.1
PROFILE = "musique"
"""Twenty passages for each question, so that there are many facts to state."""


@dataclass(frozen=True)
class LongTrace:
    """A response with many steps, and the numbers of those that are planted wrong."""

    instance: Instance
    response: Response
    planted: frozenset[int]
    """Counted from zero."""


def list_facts(instance: Instance) -> list[FactClaim]:
    """Return the facts that the passages state about their own subjects, one value for each relation."""
    facts: dict[tuple[str, str], FactClaim] = {}
    evidence = parse_evidence_facts(instance.evidence)
    names = Counter(reading.name for reading in evidence.readings)
    # Of namesakes, earlier steps decide who is meant.
    for reading in (reading for reading in evidence.readings if names[reading.name] == 1):
        for statement in reading.statements:
            values = {fact.value for fact in evidence.find_facts(reading.name, statement.relation)}
            if statement.subject is None and values == {statement.value}:
                phrase = RelationPhrase(reading.name, (statement.relation,))
                facts[reading.name, statement.relation.name] = FactClaim(phrase, statement.value)
    return list(facts.values())


def make_long_trace(instance: Instance, length: int, seed: int) -> LongTrace | None:
    """Return a long trace about the passages of a question; None where no fact can be planted wrong."""
    rng = Random(f"{seed} {instance.id} {length}")
    facts = list_facts(instance)
    # A wrong value is that of the same relation of another subject.
    others = {
        fact: [f.value for f in facts if f.phrase.path == fact.phrase.path and f.value != fact.value] for fact in facts
    }
    changeable = [fact for fact, values in others.items() if values]
    if not changeable:
        return None
    planted = frozenset(rng.sample(range(length), max(1, round(PLANTED_SHARE * length))))
    writer = TraceStepWriter(rng)
    steps = []
    for number in range(length):
        if number in planted:
            fact = rng.choice(changeable)
            claim = FactClaim(fact.phrase, rng.choice(others[fact]))
        else:
            claim = rng.choice(facts)
        steps.append(writer.write_step(claim))
    response = Response(f"{instance.id}-{length}", instance.id, Trace.of(*steps), instance.reference_answer)
    return LongTrace(instance, response, planted)


def make_long_traces(questions: int, seed: int) -> Iterator[LongTrace]:
    """Yield traces of every length, so many of each."""
    for length in LENGTHS:
        traces = (make_long_trace(item.instance, length, seed) for item in make_world_items(PROFILE, seed))
        yield from islice((trace for trace in traces if trace is not None), questions)


async def judge_all(traces: Sequence[LongTrace], folder: Path) -> list[Judgment]:
    """Judge the traces over HTTP with the default settings."""
    async with (
        open_model_server(build_world_handlers()) as server,
        Ledger.open(folder / "ledger.sqlite", run="long traces") as ledger,
        open_connection(server.base_url, ledger, CallSettings(unpriced=True)) as connection,
    ):
        return await asyncio.gather(
            *(judge_response(trace.instance, trace.response, connection.model) for trace in traces)
        )


def count_asked_steps(trace: LongTrace) -> list[int]:
    """Return the number of steps that each request about soundness asks for."""
    requests = build_judge_requests(trace.instance, trace.response, JudgeSettings())
    schemas = [request.schema.schema for request in requests if request.schema is not None]
    return [len(schema["properties"]["steps"]["required"]) for schema in schemas if "steps" in schema["properties"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge long traces and print how many planted steps were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2, help="questions for each length")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args(arguments)
    traces = list(make_long_traces(options.questions, options.seed))
    with tempfile.TemporaryDirectory() as folder:
        judgments = asyncio.run(judge_all(traces, Path(folder)))
    planted = missed = wrong = 0
    for length in LENGTHS:
        pairs = [pair for pair in zip(traces, judgments, strict=True) if len(pair[0].response.trace.steps) == length]
        unsound = {
            (trace.response.id, number)
            for trace, judgment in pairs
            for number, step in enumerate(judgment.steps)
            if step.sound is False
        }
        expected = {(trace.response.id, number) for trace, _ in pairs for number in trace.planted}
        open_steps = sum(step.substantive is None for _, judgment in pairs for step in judgment.steps)
        calls = sum(len(count_asked_steps(trace)) for trace, _ in pairs)
        print(
            f"{length} steps: {len(pairs)} traces, {calls} calls on soundness, {len(expected)} planted, "
            f"{len(expected - unsound)} missed, {len(unsound - expected)} others called unsound, {open_steps} open"
        )
        planted += len(expected)
        missed += len(expected - unsound)
        wrong += len(unsound - expected) + open_steps
    largest = max(size for trace in traces for size in count_asked_steps(trace))
    print(f"most steps in one reply: {largest}")
    return print_result(
        name="planted steps of long traces found",
        value=planted - missed,
        unit="steps",
        goal=f"= {planted}, and no other step unsound or open",
        holds=not missed and not wrong and largest <= JudgeSettings().step_window,
    )


if __name__ == "__main__":
    sys.exit(main())
