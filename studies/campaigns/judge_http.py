"""Judge over HTTP: every planted label is found, a known error rate is recovered, and the overhead is measured.

``eclose world serve`` runs in a process of its own and is asked through the whole runner, ledger and all. First its
judge is exact: every label and every step's code of 3,000 responses, failing in every way there is, must be the planted
one. Then it errs on each criterion with chance p, and ``eclose judge validate`` against the planted labels must find
p within its interval. Last it takes 200 ms for a reply, beside the bare `openai` loop with the same requests.

    python studies/campaigns/judge_http.py
    python studies/campaigns/judge_http.py --responses 200 --rounds 1     a quick look
    python studies/campaigns/judge_http.py --count --timed 100      functions called a call, which no load changes
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx2
import openai

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings
from eclose.files import jsonl
from eclose.judging.inputs import JudgeInputFiles
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.judging.validation_file import read_validation
from eclose.metrics.judge_against_people import DIRECT_LABELS
from eclose.values.judgment import Judgment
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, BrokenResponse, FailurePlan, break_response
from eclose_world.make.instances import make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES
from studies.campaigns.world_oracle import plan_name
from studies.perf.result import print_result
from studies.perf.runner_throughput import LATENCY, Timing, time_run

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence
    from types import FrameType

    from eclose.calls.model import Request
    from eclose.values.instance import Instance

SEED = 20_266
NOISE = (0.02, 0.05, 0.10)
A_QUESTION = 6
"""Responses to a question, the first of them reliable."""
CONCURRENCY = 64
GOAL = 0.95
"""Throughput as a share of a loop on the client of the openai package."""
CPU_GOAL = 1.0
"""Milliseconds a call beyond that loop."""
COVERED = 13
"""Of fifteen 95 % intervals, since all fifteen are not to be expected. Each rate has a seed of its own: with one, a
response that is erred on at one p would be erred on at every higher one, and fifteen tries would be five."""
LABELS = ("locally_sound", "aligned", "closed", "complete", "correct")


class Planted(NamedTuple):
    """Question and response whose labels are all known."""

    instance: Instance
    broken: BrokenResponse


@contextmanager
def serving(*flags: str, **settings: float) -> Iterator[str]:
    """Run ``eclose world serve`` on a free port with flags and settings of a recipe, and yield its base URL."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as recipe:
        json.dump(settings, recipe)
        recipe.flush()
        command = [sys.executable, "-m", "eclose.cli.main", "world", "serve", *flags, "--recipe", recipe.name]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
            server.wait()


def plant(profiles: Sequence[str], seed: int) -> Iterator[Planted]:
    """Yield questions of each profile in turn, with a reliable response and responses that fail by the next plans."""
    turn = 0
    for number in count():
        item = make_world_item(profiles[number % len(profiles)], seed, number // len(profiles))
        plans = [FailurePlan()]
        for _ in FAILURE_PLANS:
            plans.append(FAILURE_PLANS[turn % len(FAILURE_PLANS)])
            turn += 1
            if len(plans) == A_QUESTION:
                break
        candidates = (break_response(item, plan, "http") for plan in plans)
        # Two plans may come to the same words, which are the same response.
        yield from {
            candidate.response.id: Planted(item.instance, candidate)
            for candidate in candidates
            if candidate is not None
        }.values()


def write_run(folder: Path, planted: Iterable[Planted]) -> JudgeInputFiles:
    """Write questions, responses and planted verdicts, as ``eclose world make`` does."""
    folder.mkdir(parents=True)
    cases = list(planted)
    sources = JudgeInputFiles(folder / "instances.jsonl", folder / "responses.jsonl")
    jsonl.write_records(sources.instances, {case.instance.id: case.instance for case in cases}.values())
    jsonl.write_records(sources.responses, (case.broken.response for case in cases))
    jsonl.write_records(folder / "planted.jsonl", map(settle_verdict, cases))
    return sources


def settle_verdict(case: Planted) -> SettledVerdict:
    return SettledVerdict(case.broken.response.id, case.instance.id, case.broken.verdict, case.instance.benchmark)


def judge_run(
    sources: JudgeInputFiles, base_url: str, out: Path, settings: JudgeSettings | None = None, *, refused: int = 0
) -> list[Judgment]:
    """Judge through runner and ledger; exactly ``refused`` records must be quarantined."""
    calls = CallSettings(concurrency=CONCURRENCY, unpriced=True)
    result = asyncio.run(judge_responses(sources, base_url, out, settings, calls))
    assert not result.again
    assert sum(result.manifest.counts.quarantined.values()) == refused, result.manifest.counts
    return list(jsonl.read_records(out / "judgments.jsonl", Judgment))


class Differences(NamedTuple):
    """Counts of what differs from the planted labels."""

    labels: int
    steps: int
    unjudged: int

    def __str__(self) -> str:
        return f"{self.labels} labels and {self.steps} steps differ, {self.unjudged} labels are unjudged"


def count_differences(planted: Sequence[Planted], judgments: Sequence[Judgment]) -> Differences:
    by_id = {judgment.response_id: judgment for judgment in judgments}
    assert by_id.keys() == {case.broken.response.id for case in planted}
    counts: Counter[str] = Counter()
    for case in planted:
        judgment = by_id[case.broken.response.id]
        for expected, label in zip(_labels(case.broken.verdict), _labels(judgment.verdict), strict=True):
            counts["unjudged"] += label is None
            counts["labels"] += label is not None and label is not expected
        steps = [(step.substantive, step.sound, step.failure) for step in judgment.steps]
        expected_steps = [(step.substantive, step.sound, step.failure) for step in case.broken.steps]
        # A step too many or too few is one that differs.
        counts["steps"] += sum(
            step != expected_step for step, expected_step in zip(steps, expected_steps, strict=False)
        )
        counts["steps"] += abs(len(steps) - len(expected_steps))
    return Differences(counts["labels"], counts["steps"], counts["unjudged"])


def _labels(verdict: Verdict) -> list[bool | None]:
    return [getattr(verdict, name) for name in LABELS]


def compare_exact_judge(folder: Path, sources: JudgeInputFiles, planted: Sequence[Planted]) -> Differences:
    with serving() as base_url:
        differing = count_differences(planted, judge_run(sources, base_url, folder / "exact"))
    failing = Counter(plan_name(case.broken.plan) for case in planted)
    steps = sum(len(case.broken.steps) for case in planted)
    questions = len({case.instance.id for case in planted})
    print(f"exact judge: {len(planted):,} responses to {questions:,} questions, {5 * len(planted):,} labels,")
    ways = f"{len(failing) - 1} of {len(FAILURE_PLANS)} ways to fail"
    print(f"  {steps:,} steps, {ways} and {failing['reliable']:,} reliable")
    print(f"  {differing}", flush=True)
    return differing


def count_covering(folder: Path, sources: JudgeInputFiles, noise: float) -> int:
    """Return how many of the five intervals cover p."""
    run_folder = folder / f"noise-{noise}"
    with serving("--seed", str(NOISE.index(noise) + 1), judge_noise=noise) as base_url:
        judge_run(sources, base_url, run_folder)
    for name in ("instances.jsonl", "responses.jsonl"):
        os.link(sources.responses.with_name(name), run_folder / name)
    verdicts = sources.responses.with_name("planted.jsonl")
    command = [
        sys.executable,
        "-m",
        "eclose.cli.main",
        "judge",
        "validate",
        str(run_folder),
        "--verdicts",
        str(verdicts),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    covering = 0
    for label in DIRECT_LABELS:
        row = read_validation(run_folder / "validation.json").overall.rows[label]
        rate, interval = row.disagreement.value, row.disagreement.interval
        assert rate is not None
        assert interval is not None
        holds = interval.low <= noise <= interval.high
        covering += holds
        cell = f"{100 * rate:5.2f} % [{100 * interval.low:5.2f}, {100 * interval.high:5.2f}]"
        print(f"  p = {noise:.2f}  {label:4} n = {row.n:,}  {cell}{'' if holds else '  does not hold p'}", flush=True)
    return covering


def list_requests(planted: Iterable[Planted], settings: JudgeSettings) -> list[Request]:
    """List the distinct requests; one that several responses share, such as that about their evidence, counts once."""
    requests = (
        request for case in planted for request in build_judge_requests(case.instance, case.broken.response, settings)
    )
    return list({json.dumps([request.messages, request.replica]): request for request in requests}.values())


async def send_bare(base_url: str, requests: Sequence[Request]) -> int:
    """Send the same requests with a plain client that stores nothing; return how many were answered."""
    waiting, finished = iter(requests), 0
    limits = httpx2.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    http = openai.DefaultAioHttpClient(limits=limits)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http) as client:

        async def work() -> None:
            nonlocal finished
            for request in waiting:
                assert request.schema is not None
                shape = {"name": request.schema.name, "schema": dict(request.schema.schema), "strict": True}
                reply = await client.chat.completions.create(  # type: ignore[call-overload]
                    model="world",
                    messages=list(request.messages),
                    max_tokens=request.decoding.max_tokens,
                    temperature=request.decoding.temperature,
                    response_format={"type": "json_schema", "json_schema": shape},
                )
                json.loads(reply.choices[0].message.content or "")
                finished += 1

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return finished


async def judge_recorded(sources: JudgeInputFiles, base_url: str, out: Path) -> int:
    """Judge through runner, ledger and exports; return the number of replies."""
    calls = CallSettings(concurrency=CONCURRENCY, unpriced=True, slow_start=False)
    result = await judge_responses(sources, base_url, out, calls=calls)
    return int(result.manifest.calls["replies"])


def measure_overhead(folder: Path, planted: Sequence[Planted], rounds: int) -> tuple[float, float]:
    """Return our throughput as a share of the bare loop's, and milliseconds of CPU a call beyond it."""
    requests = list_requests(planted, JudgeSettings())
    sources = write_run(folder / "timed", planted)
    plain: list[Timing] = []
    recorded: list[Timing] = []
    # What the parts before have left behind is no part of either loop, and would be walked in both again and again.
    gc.collect()
    gc.freeze()
    with serving("--latency", str(LATENCY)) as base_url:
        time_run(send_bare(base_url, requests[:CONCURRENCY]), len(requests[:CONCURRENCY]))
        for number in range(rounds):
            plain.append(time_run(send_bare(base_url, requests), len(requests)))
            recorded.append(time_run(judge_recorded(sources, base_url, folder / f"timed-{number}"), len(requests)))
            print(
                f"round {number + 1}: {len(requests):,} calls, bare loop {plain[-1]}; ours {recorded[-1]}", flush=True
            )
    share = min(timing.seconds for timing in plain) / min(timing.seconds for timing in recorded)
    beyond = 1e3 * (min(timing.cpu for timing in recorded) - min(timing.cpu for timing in plain)) / len(requests)
    waiting = LATENCY * len(requests) / CONCURRENCY
    print(f"the model's latency alone: {waiting:.1f} s; ours {share:.2f} x the bare loop's throughput")
    return share, beyond


def count_functions(work: Coroutine[None, None, int], expected: int) -> float:
    """Count the functions called for each model call, Python's and C's, in every thread."""
    calls = count()

    def see(_frame: FrameType, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            next(calls)

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        finished = asyncio.run(work)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert finished == expected, (finished, expected)
    return next(calls) / expected


def count_calls(folder: Path, planted: Sequence[Planted]) -> None:
    """Print the functions called for each model call, a measure that the load of the machine does not change."""
    requests = list_requests(planted, JudgeSettings())
    sources = write_run(folder / "counted", planted)
    with serving() as base_url:
        # Warm up what is built once and cached.
        time_run(send_bare(base_url, requests[:CONCURRENCY]), len(requests[:CONCURRENCY]))
        time_run(judge_recorded(sources, base_url, folder / "first"), len(requests))
        plain = count_functions(send_bare(base_url, requests), len(requests))
        recorded = count_functions(judge_recorded(sources, base_url, folder / "second"), len(requests))
    print(f"functions called for each of {len(requests):,} calls: bare loop {plain:,.0f}, ours {recorded:,.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=3_000)
    parser.add_argument("--timed", type=int, default=1_000, help="responses of the timed comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", action="store_true", help="only count the functions called for each model call")
    options = parser.parse_args()
    planted = list(
        islice(
            plant([*BENCHMARK_PROFILES, *SHORT_BENCHMARK_PROFILES], SEED),
            options.timed if options.count else options.responses,
        )
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.count:
            count_calls(folder, planted)
            return 0
        sources = write_run(folder / "run", planted)
        differing = compare_exact_judge(folder, sources, planted)
        print("judge validate, share of responses on which the judge errs [95 %]")
        covering = sum(count_covering(folder, sources, noise) for noise in NOISE)
        share, beyond = measure_overhead(folder, planted[: options.timed], options.rounds)
    intervals = len(NOISE) * len(DIRECT_LABELS)
    wrong = differing.labels + differing.steps + differing.unjudged
    return print_result(
        name=f"labels and steps of {len(planted):,} responses not as planted, judged over HTTP",
        value=wrong,
        unit=f"of all; {covering} of {intervals} intervals hold p; {share:.2f} x the bare loop's throughput, "
        f"{beyond:.2f} ms of CPU a call beyond it",
        goal=f"0; >= {COVERED} of {intervals}; >= {GOAL} and < {CPU_GOAL:g} ms",
        holds=wrong == 0 and covering >= COVERED and share >= GOAL and beyond < CPU_GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
