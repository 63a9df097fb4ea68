"""Response times of the annotation server under load: pages, drafts and submissions of simulated annotators.

All users work without rest: they open a pass, change their mind on the way (a draft each time), submit,
and go on. One of them adjudicates; the lead looks at the dashboard now and then. Scripts and styles are fetched with
every page, since nothing may be kept.

    python studies/perf/annotate_load.py                                      8 users on SQLite, half a minute
    python studies/perf/annotate_load.py --database postgresql --users 20 --questions 33334 --waiting 30000 \
        --seconds 120
                                                                      20 users, 100,000 responses on PostgreSQL
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.values.judgment import LocalFailure
from eclose_annotate.project import open_annotation_project
from eclose_annotate.setup import AnnotationCrew
from eclose_world.faulty.broken_responses import FailurePlan
from studies.campaigns.annotators.browser import Browser
from studies.campaigns.annotators.error_model import HardDecisions, SimulatedAnnotator
from studies.campaigns.annotators.labeller import Labeller, TruthIndex
from studies.campaigns.annotators.material import World, make_world
from studies.campaigns.annotators.server import Server, load_average, make_project, percentile, quiet
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from studies.campaigns.annotators.browser import RequestTiming

GOAL = 0.150
"""Seconds, for 95 of 100 requests."""
DISTINCT_QUESTIONS = 400
"""Questions that differ; beyond this number they repeat under other ids."""
MIX = {tuple(FailurePlan(code) for code in LocalFailure): 0.25}
RATES = {
    "sound": HardDecisions(0.6, 0.09, 0.09),
    "aligned": HardDecisions(0.6, 0.09, 0.09),
    "closed": HardDecisions(0.6, 0.09, 0.09),
    "complete": HardDecisions(0.6, 0.09, 0.09),
}
BACKGROUND_KINDS = ("dashboard", "static", "enter")
"""Kinds of requests that are printed but not part of the goal, as no annotator waits for them."""


class WaitingLabeller(Labeller):
    """Labeller that keeps looking for new tasks when its queue is empty."""

    def wait_for_more(self) -> bool:
        return True


def make_many(questions: int) -> World:
    """Make questions with three responses each; beyond ``DISTINCT_QUESTIONS`` they repeat under other ids."""
    distinct = make_world(min(questions, DISTINCT_QUESTIONS), MIX)
    instances, responses = list(distinct.instances), list(distinct.responses)
    rounds = -(-questions // len(instances))
    return World(
        list(
            islice(
                (replace(record, id=f"{record.id}#{turn}") for turn in range(rounds) for record in distinct.instances),
                questions,
            )
        ),
        list(
            islice(
                (
                    replace(record, id=f"{record.id}#{turn}", instance_id=f"{record.instance_id}#{turn}")
                    for turn in range(rounds)
                    for record in responses
                ),
                3 * questions,
            )
        ),
        distinct.truths,
    )


def prepare(folder: Path, options: argparse.Namespace) -> tuple[dict[str, str], World]:
    """Create the project and print how long that takes; return the invitation links and the material."""
    world = make_many(options.questions)
    names = [f"annotator{number}" for number in range(1, options.users)]
    crew = AnnotationCrew(annotators=names, adjudicators=["adjudicator"], leads=["lead"])
    database = None
    if options.database == "postgresql":
        from tests.calls.ledger.postgres import fresh_database  # noqa: PLC0415 - starts a server

        database = fresh_database()
    began = time.perf_counter()
    links = make_project(folder, world, crew, database=database)
    took = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(world.instances):,} questions, {len(world.responses):,} responses, {2 * len(world.responses):,} tasks"
        f" for {len(names)} annotators put in and given out in {took:.1f} s, {peak:.0f} MiB at most",
        flush=True,
    )
    if options.waiting:
        fill_queue(folder, options.waiting)
    return links, world


def fill_queue(folder: Path, count: int) -> None:
    """Queue this many responses for the adjudicator, as late in a project with a backlog."""
    project = open_annotation_project(folder)
    with project.writing() as connection:
        connection.execute(_DISPUTE, {"count": count})
    with project.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    project.close()


_DISPUTE = text(
    "INSERT INTO annotate_adjudications (subject, kind, question, response, triggers, rank, at)"
    " SELECT subject, min(kind), min(question), min(response), '[\"soundness\"]', min(id), '2026-01-01' FROM"
    " annotate_tasks GROUP BY subject ORDER BY subject LIMIT :count"
)


def measure(
    origin: str, links: dict[str, str], world: World, options: argparse.Namespace, server: Server
) -> list[RequestTiming]:
    """Let all users work for the configured time and return the timed requests, without the warm-up."""
    truths = TruthIndex(world.truths)
    browsers = {name: Browser(origin, static=True) for name in links}
    for name, browser in browsers.items():
        browser.join(links[name])
        # Until the last one has joined, the server closes the idle connections of the first ones.
        browser.close()
    began = time.perf_counter()
    until = began + options.warm_up + options.seconds
    over = lambda: time.perf_counter() > until  # noqa: E731 - a clock
    with ThreadPoolExecutor(len(links)) as pool:
        futures = [
            pool.submit(look_on if name == "lead" else label, browser, name, truths, options.think, over)
            for name, browser in browsers.items()
        ]
        time.sleep(options.warm_up)
        cpu, start = server.cpu, time.perf_counter()
        time.sleep(options.seconds)
        spent, seconds = server.cpu - cpu, time.perf_counter() - start
        for future in futures:
            future.result()
    timings = [
        timing for browser in browsers.values() for timing in browser.timings if start <= timing.at < start + seconds
    ]
    print(
        f"{len(timings) / seconds:.1f} requests/s, {1e3 * spent / len(timings):.1f} ms of the server's CPU each"
        f" ({100 * spent / seconds:.0f} % of a core), {server.memory:.0f} MiB",
        flush=True,
    )
    return timings


def label(browser: Browser, name: str, truths: TruthIndex, think: float, over: Callable[[], bool]) -> None:
    rng = Random(name)
    annotator = SimulatedAnnotator(name, {} if name == "adjudicator" else RATES)
    pause = lambda: rng.uniform(0.5, 1.5) * think  # noqa: E731 - a short wait
    WaitingLabeller(browser, annotator, truths, think=pause, drafts=2, until=over).work()


def look_on(browser: Browser, _name: str, _truths: TruthIndex, _think: float, over: Callable[[], bool]) -> None:
    while not over():
        assert browser.get("/dashboard", "dashboard").status == 200
        time.sleep(5)


def table(timings: Sequence[RequestTiming]) -> None:
    """Print percentiles of the times of each kind of request."""
    kinds = defaultdict(list)
    for timing in timings:
        kinds[timing.kind].append(1e3 * timing.seconds)
        if timing.kind not in BACKGROUND_KINDS:
            kinds["all that people wait for"].append(1e3 * timing.seconds)
    print(f"{'ms':26}{'n':>8}{'p50':>8}{'p95':>8}{'p99':>8}{'most':>8}")
    for kind, values in sorted(kinds.items(), key=lambda pair: pair[0]):
        shares = (percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0))
        print(f"{kind:26}{len(values):8,}" + "".join(f"{value:8.1f}" for value in shares))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--users", type=int, default=8, help="users in all, one of whom adjudicates")
    parser.add_argument("--questions", type=int, default=400, help="questions, with three responses each")
    parser.add_argument(
        "--waiting", type=int, default=0, help="further responses that wait for the adjudicator from the start"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds that are measured")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before the measurement")
    parser.add_argument("--think", type=float, default=0.25, help="seconds before each draft and submission")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        links, world = prepare(Path(folder) / "study", options)
        quiet(0.7, options.patience)
        print(f"before: {load_average()}", flush=True)
        with Server(Path(folder) / "study") as server:
            timings = measure(server.origin, links, world, options, server)
        print(f"after: {load_average()}")
    table(timings)
    failed = sum(timing.status >= 400 for timing in timings)
    p95 = percentile([timing.seconds for timing in timings if timing.kind not in BACKGROUND_KINDS], 0.95)
    return print_result(
        name=f"annotation pages, drafts and submissions for {options.users} users on {options.database},"
        f" {3 * options.questions:,} responses",
        value=round(1e3 * p95, 1),
        unit=f"ms, p95 of {sum(timing.kind not in BACKGROUND_KINDS for timing in timings):,} requests; {failed} failed",
        goal=f"< {1e3 * GOAL:g}",
        holds=p95 < GOAL and not failed,
    )


if __name__ == "__main__":
    sys.exit(main())
