"""Kill the annotation server repeatedly while six people work: every acknowledged submission is recorded exactly once.

Five annotators and an adjudicator label over HTTP. The server is killed with SIGKILL at random moments and at named
points and started again on the same port. Labellers whose connection breaks send the same form again, or close the
browser and look where they are. After every kill the log must have no gap, and the end of it that is known outside
must be in the database; in the end every receipt must stand for what was sent.

    python studies/campaigns/annotate_kills.py --kills 100                            100 kills on SQLite
    python studies/campaigns/annotate_kills.py --kills 100 --database postgresql   the same on PostgreSQL, started here
    python studies/campaigns/annotate_kills.py                                        20 kills
    python studies/campaigns/annotate_kills.py --mutant forgetful                     must fail: see MUTANTS
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, event, text

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.values.judgment import LocalFailure
from eclose_annotate import events as audit_log
from eclose_annotate import submissions
from eclose_annotate.project import AUDIT_HEAD_FILE, open_annotation_project
from eclose_annotate.setup import AnnotationCrew
from eclose_annotate.web.dependencies import AnnotationServerState
from eclose_annotate.web.serve import serve_annotation
from eclose_world.faulty.broken_responses import FailurePlan
from studies.campaigns.annotators import retrying_labeller
from studies.campaigns.annotators.audit import Audit, audit
from studies.campaigns.annotators.material import make_world
from studies.campaigns.annotators.server import load_average, make_project
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from studies.campaigns.annotators.material import World

FAILPOINTS = ("before the commit", "before the head", "in the head", "before the answer")
"""Named points of a kill, all of them in a submission."""
MUTANTS = ("forgetful", "head first")
"""Mutants: forget the keys of forms, note the head before the commit."""
MIX = {tuple(FailurePlan(code) for code in LocalFailure): 0.3}
ANNOTATORS = [f"annotator{number}" for number in range(1, 6)]
GOAL = 5.0
"""Seconds of decisions that may be lost with a draft."""
ENOUGH = 20
"""Number of kills from which broken connections of every kind are required, as a sign of real load."""
BUSY = 5
"""Least submissions for each kill that count as load."""
EVENTS_TIMEOUT = 60.0
"""Seconds to wait for work to be done before a kill."""


# --- failpoints and mutants ----------------------------------------------------------------------------------------


def die_at(point: str, occurrence: int) -> None:
    """Kill this process when the point is reached for the ``occurrence``-th time."""
    remaining = occurrence

    def reached() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if point == "before the commit":
        submitting: list[Any] = []
        _before(submissions, "_record", lambda connection, *_: submitting.append(connection))
        event.listen(Engine, "commit", lambda connection: reached() if connection in submitting else None)
    elif point == "in the head":
        _before(os, "pwrite", lambda *_: reached())
    elif point == "before the head":
        _before(audit_log.AuditLogHead, "advance", lambda *_: reached())
    else:
        _after(submissions, "submit_pass_and_commit", reached)


def _before(owner: Any, name: str, reached: Callable[..., None]) -> None:
    function = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        reached(*arguments)
        return function(*arguments)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, reached: Callable[[], None]) -> None:
    function = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        result = function(*arguments)
        reached()
        return result

    setattr(owner, name, wrapped)


def mutate(mutant: str | None) -> None:
    """Break the server on purpose."""
    if mutant == "forgetful":
        submissions._find_repeated = lambda *_: None
    elif mutant == "head first":
        record = submissions._record

        def early(connection: Any, person: Any, row: Any, *form: Any) -> Any:
            receipt = record(connection, person, row, *form)
            # The project of the connection, whose folder is told by the environment of this process.
            head = audit_log.AuditLogHead(Path(os.environ["ANNOTATE_HEAD"]))
            head.advance(connection.info[audit_log.LAST_EVENT])
            return receipt

        submissions._record = early  # type: ignore[assignment]


# --- kills ------------------------------------------------------------------------------------------------------------


def run_forked(run: Callable[[], None]) -> int:
    """Run a function in a forked process and return its id; a fresh interpreter would import for longer."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except BaseException as error:  # the parent must never run on in the child
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


class Rig:
    """Project under test, the port of its server, and the mutant in it."""

    def __init__(self, folder: Path, mutant: str | None = None) -> None:
        self.folder, self.mutant = folder, mutant
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, failpoint: tuple[str, int] | None = None) -> int:
        """Start the server and return its process id once it answers."""

        def run() -> None:
            os.environ["ANNOTATE_HEAD"] = str(self.folder / AUDIT_HEAD_FILE)
            mutate(self.mutant)
            if failpoint is not None:
                die_at(*failpoint)
            serve_annotation(AnnotationServerState(open_annotation_project(self.folder)), port=self.port)

        pid = run_forked(run)
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return pid
            except OSError:
                time.sleep(0.01)
        # A named point may come before the first answer; another server tries.
        return self.start()

    def kill(self, pid: int, events: int, seconds: float) -> bool:
        """Kill the server a moment after this many more events; return whether it had died at a named point before."""
        until, deadline = self.events + events, time.monotonic() + EVENTS_TIMEOUT
        while self.events < until and time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.002)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    @property
    def events(self) -> int:
        """Number of the last event, as the head file outside the database has it."""
        return audit_log.AuditLogHead(self.folder / AUDIT_HEAD_FILE).read().seq

    def problems(self) -> list[str]:
        """List what is wrong with the log right after a kill; a project that lost events is not opened at all."""
        project = open_annotation_project(self.folder)
        with project.reading() as connection:
            events = connection.execute(text("SELECT count(*) FROM annotate_events")).scalar_one()
            head, last = project.head.read(), audit_log.last_audit_event(connection)
        project.close()
        problems = [] if events == last.seq else [f"there are {events} events up to number {last.seq}"]
        if head.seq > last.seq:
            problems.append(f"the head outside says {head.seq}, and there are {last.seq} events")
        return problems


def kill_again_and_again(rig: Rig, kills: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Kill at random moments, and in two fifths of the rounds at a named point; leave no server running."""
    killed: Counter[str] = Counter()
    problems: list[str] = []
    while killed.total() < kills:
        failpoint = (rng.choice(FAILPOINTS), rng.randrange(1, 20)) if rng.random() < 0.4 else None
        pid = rig.start(failpoint)
        # By work done and not by the clock, so that people are at it on a slow machine too.
        at_point = rig.kill(pid, 60 if failpoint else rng.randrange(0, 25), rng.uniform(0.0, 0.1))
        killed[failpoint[0] if failpoint and at_point else "random"] += 1
        problems += rig.problems()
    return killed, problems


def start_labellers(rig: Rig, links: dict[str, str], world: World, seed: int) -> int:
    """Start six labellers in a process of their own, which work until SIGTERM."""
    return run_forked(
        lambda: retrying_labeller.work(f"http://127.0.0.1:{rig.port}", links, world, rig.folder.parent, seed)
    )


# --- what must hold --------------------------------------------------------------------------------------------------


def report(outcome: Audit, killed: Counter[str], problems: list[str], options: argparse.Namespace, start: float) -> int:
    points = ", ".join(f"{point} {count}" for point, count in sorted(killed.items()))
    print(f"{killed.total()} kills ({points}) in {time.monotonic() - start:.0f} s; {load_average()}")
    print(
        f"{outcome.acknowledged:,} submissions acknowledged, {outcome.retried} of them after a broken connection;"
        f" {outcome.given_up} given up unacknowledged, of which {outcome.given_up_kept} are recorded whole;"
        f" {outcome.took:,} cases taken by the adjudicator; {outcome.events:,} events;"
        f" {outcome.unfinished:,} tasks left"
    )
    print(
        f"{outcome.drafts:,} drafts acknowledged, {outcome.reopened} looked at again after a kill;"
        f" at most {outcome.draft_loss:.2f} s of decisions lost (and what a page waits before it saves)"
    )
    problems = problems + outcome.problems
    busy = outcome.acknowledged >= BUSY * killed.total()
    if not busy or (killed.total() >= ENOUGH and not (outcome.retried and outcome.reopened and outcome.unfinished)):
        problems.append("too few forms were submitted to tell")
    for problem in sorted(set(problems))[:20]:
        print(f"PROBLEM: {problem}")
    return print_result(
        name=f"annotation server killed on {options.database}",
        value=killed.total(),
        unit=f"kills; {outcome.lost} acknowledged submissions lost, {outcome.doubled} doubled,"
        f" {len(problems)} problems",
        goal=f">= {options.kills} kills, no problem, drafts lose at most {GOAL:g} s",
        holds=killed.total() >= options.kills and not problems and outcome.draft_loss <= GOAL,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), options)


def _run(folder: Path, options: argparse.Namespace) -> int:
    database = None
    if options.database == "postgresql":
        from tests.calls.ledger.postgres import fresh_database  # noqa: PLC0415 - starts a server

        database = fresh_database()
    # Enough that no queue runs empty, and few enough that two annotators label the same response and differ.
    world = make_world(10 + 3 * options.kills, MIX, systems=("one", "two"))
    links = make_project(folder / "study", world, AnnotationCrew(ANNOTATORS, ["adjudicator"]), database=database)
    rig = Rig(folder / "study", options.mutant)
    start = time.monotonic()
    workers = start_labellers(rig, links, world, options.seed)
    try:
        killed, problems = kill_again_and_again(rig, options.kills, random.Random(options.seed))
        server = rig.start()
    finally:
        # Labellers that wait for an answer get one now, and stop.
        os.kill(workers, signal.SIGTERM)
    if os.waitstatus_to_exitcode(os.waitpid(workers, 0)[1]) != 0:
        problems.append("people could not work")
    rig.kill(server, 0, 0.0)
    return report(audit(folder / "study", folder), killed, problems + rig.problems(), options, start)


if __name__ == "__main__":
    sys.exit(main())
