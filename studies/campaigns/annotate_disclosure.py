"""Disclosure sweep of the annotation server: no page shows what a person may not know yet, and every mutant is noticed.

Sweep: a project in which everything that can be hidden is a token. All users work it off, pass by pass, and after each
pass every user requests every route; all bytes are searched in every encoding. Orders: random requests of all users in
random order, each compared with the required answer. Doubles: two submissions of one pass at the same
moment, over a socket. Mutants: the package with one lock taken out; what should notice must fail.

    python studies/campaigns/annotate_disclosure.py
    python studies/campaigns/annotate_disclosure.py --mutants                                the mutants alone
    python studies/campaigns/annotate_disclosure.py --orders 20 --doubles 12 --quick         a quick look
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from studies.perf.result import print_result

ROOT = Path(__file__).parents[2]

WEB = "packages/eclose-annotate/tests/web"
ORDERS = "orders"
"""Stands for a few random orders instead of a test."""
FEW_ORDERS = (
    "import sys, tempfile, pathlib; from tests.web.orders import run_orders;"
    "sys.exit(3 if run_orders(pathlib.Path(tempfile.mkdtemp()), range(8), 12).wins else 0)"
)
WON = 3
"""Exit code of orders that gained something; a script that breaks has another, and proves nothing."""


class Mutant(NamedTuple):
    """Safeguard removed from one file, and the test that must notice."""

    name: str
    file: str
    old: str
    new: str
    noticed_by: str


def _test(name: str, file: str = "test_security") -> str:
    return f"{WEB}/{file}.py::{name}"


_D_QUERY = '_TRACE.replace("r.steps FROM", "r.steps, k.reference, k.aliases FROM").replace("annotate_tasks t", "annotate_tasks t JOIN annotate_references k ON k.question = t.question")'  # noqa: E501 - one text
MUTANTS = (
    Mutant(
        "every pass is open",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        'submitted = connection.execute(_DONE, {"task": row.id}).scalars().all()',
        "submitted = list(row.passes[:-1])",
        ORDERS,
    ),
    Mutant(
        "every task is open",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "if row.id != queues.find_next_task(connection, row.person):",
        "if False:",
        ORDERS,
    ),
    Mutant(
        "a pass is submitted out of order",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "if form is None or form.name != name:",
        "if form is None:",
        _test("test_passes_cannot_be_skipped", "test_annotator"),
    ),
    Mutant(
        "a query reads a later column",
        "eclose-annotate/src/eclose_annotate/visible.py",
        '"A": _TRACE,',
        f'"A": {_D_QUERY},',
        _test("test_a_pass_reads_no_column_it_does_not_show", "test_disclosure"),
    ),
    Mutant(
        "a page shows a later field",
        "eclose-annotate/src/eclose_annotate/visible.py",
        '"B": _trace,',
        '"B": _with_answer,',
        ORDERS,
    ),
    Mutant(
        "a page shows the id of a question",
        "eclose-annotate/src/eclose_annotate/visible.py",
        '"SELECT q.question, q.evidence, r.steps FROM',
        '"SELECT q.key AS question, q.evidence, r.steps FROM',
        ORDERS,
    ),
    Mutant(
        "no unique constraint in the database",
        "eclose-annotate/src/eclose_annotate/schema.py",
        "        UNIQUE (task, pass),\n",
        "",
        "packages/eclose-annotate/tests/test_schema.py",
    ),
    Mutant(
        "a repeated submission is not recognised",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "if (previous := _find_repeated(connection, task, name, entries, key)) is not None:",
        "if (previous := None) is not None:",
        ORDERS,
    ),
    Mutant(
        "every person owns a task",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "WHERE id = :task AND person = :person",
        "WHERE id = :task AND :person > 0",
        ORDERS,
    ),
    Mutant(
        "others' labels are always shown",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "if row.role != PersonRole.ADJUDICATOR or not project.settings.shows_labels(AnnotationTaskKind(row.kind)):",
        "if False:",
        _test("test_what_others_decide_changes_no_byte_of_a_page", "test_disclosure"),
    ),
    Mutant(
        "an omitted pass answers 404",
        "eclose-annotate/src/eclose_annotate/submissions.py",
        "if each.name == name), None)",
        "if each.name == name and name in row.passes), None)",
        _test("test_it_is_not_told_that_there_is_no_answer", "test_disclosure"),
    ),
    Mutant(
        "an undone pass is open to every person",
        "eclose-annotate/src/eclose_annotate/labelling/undo.py",
        "WHERE t.person = :person AND t.withdrawn IS NULL AND {_UNUSED}",
        "WHERE :person > 0 AND t.withdrawn IS NULL AND {_UNUSED}",
        _test("test_an_undone_pass_is_open_to_one_person"),
    ),
    Mutant(
        "a pass is undone after more was disclosed",
        "eclose-annotate/src/eclose_annotate/labelling/undo.py",
        "if find_undoable_pass(connection, person) != (task, name):",
        "if False:",
        _test("test_an_undone_pass_is_open_to_one_person"),
    ),
    Mutant(
        "no CSRF token",
        "eclose-annotate/src/eclose_annotate/web/dependencies.py",
        'if not sessions.csrf_token_matches(visit.session, fields.get("csrf", "")):',
        "if False:",
        _test("test_every_form_needs_the_token_of_its_session"),
    ),
    Mutant(
        "no check of the origin",
        "eclose-annotate/src/eclose_annotate/web/security.py",
        'if not _same_origin(headers, headers[b"host"]):',
        "if False:",
        _test("test_a_form_from_another_page_is_refused_everywhere"),
    ),
    Mutant(
        "no security middleware",
        "eclose-annotate/src/eclose_annotate/web/security.py",
        '        if scope["type"] != "http":\n',
        "        if True:\n",
        _test("test_headers_of_every_answer"),
    ),
    Mutant(
        "no check of the role",
        "eclose-annotate/src/eclose_annotate/web/dependencies.py",
        "if visit.person.role is not PersonRole.LEAD:",
        "if False:",
        _test("test_a_page_of_another_role_does_not_exist"),
    ),
    Mutant(
        "scripts can read the cookie",
        "eclose-annotate/src/eclose_annotate/web/dependencies.py",
        "secure=state.tls, httponly=True, samesite",
        "secure=state.tls, httponly=False, samesite",
        _test("test_the_cookie_is_for_this_server_alone"),
    ),
    Mutant(
        "no limit on login attempts",
        "eclose-annotate/src/eclose_annotate/people/passwords.py",
        "            if used_up:\n",
        "            if False:\n",
        _test("test_guessing_is_slowed_down_and_tells_nothing", "test_getting_in"),
    ),
    Mutant(
        "logout does not end the session",
        "eclose-annotate/src/eclose_annotate/web/auth.py",
        "        sessions.end_login_session(connection, token)\n",
        "        pass\n",
        _test("test_a_session_is_ended_by_its_owner_and_by_the_lead", "test_getting_in"),
    ),
    Mutant(
        "the page shows the error message",
        "eclose-annotate/src/eclose_annotate/web/app.py",
        '"Something went wrong on the server. Submitted passes are safe; try again."',
        "str(error)",
        _test("test_a_bug_is_in_the_log_and_not_on_the_page"),
    ),
    Mutant(
        "text is not escaped",
        "eclose/src/eclose/report/formats/html_template.py",
        "autoescape=True",
        "autoescape=False",
        _test("test_every_text_stays_text", "test_hostile"),
    ),
)


def list_stale_mutants() -> list[str]:
    """List mutants whose text the package does not have any more, and tests that do not exist."""
    problems = []
    for mutant in MUTANTS:
        if mutant.old not in (ROOT / "packages" / mutant.file).read_text("utf-8"):
            problems.append(f"{mutant.name}: {mutant.file} does not contain {mutant.old!r}.")
        path, _, test = mutant.noticed_by.partition("::")
        if mutant.noticed_by != ORDERS and f"def {test}" not in (ROOT / path).read_text("utf-8"):
            problems.append(f"{mutant.name}: there is no test {mutant.noticed_by}.")
    return problems


def is_noticed(mutant: Mutant) -> bool:
    """Return whether its test fails on the package with this change."""
    with tempfile.TemporaryDirectory() as folder:
        house, _, module = mutant.file.partition("/src/")
        package = module.partition("/")[0]
        shutil.copytree(ROOT / "packages" / house / "src" / package, Path(folder) / package)
        path = Path(folder) / module
        path.write_text(path.read_text("utf-8").replace(mutant.old, mutant.new), "utf-8")
        command = [sys.executable, "-c", FEW_ORDERS]
        if mutant.noticed_by != ORDERS:
            # An empty -m selects slow tests, too.
            command = [sys.executable, "-m", "pytest", "-x", "-m", "", "-p", "no:cacheprovider", mutant.noticed_by]
        paths = os.pathsep.join((folder, *map(str, ROOT.glob("packages/*"))))
        process = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
    expected_code = WON if mutant.noticed_by == ORDERS else 1
    if process.returncode not in (0, expected_code):
        raise SystemExit(f"{mutant.name}: could not be tried.\n{process.stdout}{process.stderr}")
    return process.returncode == expected_code


def _module(name: str) -> Any:
    return importlib.import_module(f"tests.web.{name}")


def sweep_routes(folder: Path, *, thorough: bool) -> int:
    """Request every route after every pass; return how many answers disclosed too much or were wrong."""
    canaries, crowd = _module("canaries"), _module("crowd")
    start = perf_counter()
    with canaries.study(folder / "sweep") as study, crowd.crowd(study) as users:
        sweep = _module("sweeps").Sweep(study, users, thorough=thorough)
        sweep.run()
    scan = sweep.scan
    print(
        f"sweep: {len(sweep.routes)} routes, {scan.pages:,} answers, {scan.size:,} bytes, {len(study.canaries.known)}"
        f" tokens: {len(scan.leaks)} too early, {len(sweep.broken)} wrong answers  {perf_counter() - start:.0f} s",
        flush=True,
    )
    for kind, passes in sorted(scan.met.items()):
        where = "".join(sorted(name for name in passes if len(name) == 1))
        print(f"  {kind}: in passes {where or 'none'}")
    for problem in (*scan.leaks, *sweep.broken)[:20]:
        print(f"  {problem}")
    return int(len(scan.leaks) + len(sweep.broken))


def run_random_orders(folder: Path, orders: int, requests: int) -> int:
    """Send random requests in random order; return how many gained anything they must not."""
    start = perf_counter()
    tally = _module("orders").run_orders(folder, range(orders), requests)
    answers = ", ".join(f"{count:,} x {status}" for status, count in sorted(tally.answers.items()))
    print(
        f"orders: {tally.orders:,} of {requests} requests, {tally.pages:,} answers ({answers}), {tally.size:,} bytes,"
        f" {tally.accepted:,} forms accepted: {len(tally.advances)} out of order, {len(tally.disclosures)} too early,"
        f" {len(tally.access)} to another's  {perf_counter() - start:.0f} s",
        flush=True,
    )
    return int(tally.wins)


def run_double_submissions(folder: Path, times: int) -> int:
    """Submit each pass twice at once; return how often the outcome was not exactly one row."""
    start = perf_counter()
    with _module("canaries").study(folder / "doubles", questions=8) as study:
        result = _module("doubles").run_doubles(study, times)
    answers = ", ".join(f"{count} x {pair[0]} and {pair[1]}" for pair, count in sorted(result.answers.items()))
    print(f"doubles: {times} ({answers}), {result.rows} rows, {len(result.wins)} gains  {perf_counter() - start:.0f} s")
    return int(len(result.wins) + abs(result.rows - times))


def run_requests(options: argparse.Namespace) -> int:
    """Run sweep, orders and doubles; return how many answers or outcomes were wrong."""
    with tempfile.TemporaryDirectory() as folder:
        wins = sweep_routes(Path(folder), thorough=not options.quick)
        wins += run_random_orders(Path(folder), options.orders, options.requests)
        return wins + run_double_submissions(Path(folder), options.doubles)


def main() -> int:
    """Run sweep, orders, doubles and mutants, and print whether the goal holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--requests", type=int, default=20, help="requests of each order")
    parser.add_argument("--doubles", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="a smaller sweep, and no mutants")
    parser.add_argument("--mutants", action="store_true", help="the mutants alone")
    options = parser.parse_args()
    if problems := list_stale_mutants():
        raise SystemExit("\n".join(problems))
    # Every refusal is a line of the server's log, and nearly everything here is refused.
    logging.getLogger("eclose").setLevel(logging.CRITICAL)
    wins = 0 if options.mutants else run_requests(options)
    survivors = 0
    for mutant in () if options.quick else MUTANTS:
        detected = is_noticed(mutant)
        survivors += not detected
        by = mutant.noticed_by.rpartition("::")[2]
        print(f"mutant: {mutant.name}: {'detected by' if detected else 'NOT DETECTED by'} {by}", flush=True)
    return print_result(
        name="early disclosures, gains out of order and undetected mutants",
        value=wins + survivors,
        unit="count",
        goal="0",
        holds=wins + survivors == 0,
    )


if __name__ == "__main__":
    sys.exit(main())
