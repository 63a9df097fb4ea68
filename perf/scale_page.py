"""The page of ``eclose view`` at size: first paint under 2 s, a filter under 0.5 s, browser memory under 500 MB.

Makes responses in the world and repeats them under new ids, questions and passages until there are enough, builds the
index from that stream, serves it, and opens the page in headless Chromium. Memory is that of the tab's process and its
heap. The aggregates of the page are those of the first responses: their size does not depend on the number. The last
line is the figure as JSON. Needs playwright and a Chromium. Full size: ``--responses 1000000``.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result

from eclose.diagnosis.diagnose import JudgedCase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAINT_GOAL, FILTER_GOAL, MEMORY_GOAL = 2.0, 0.5, 500
MADE = 2_000
"""Responses that are made; the others repeat them."""


def repeat_cases(made: Sequence[JudgedCase], count: int) -> Iterator[JudgedCase]:
    """Yield as many cases, each with an id of its own, and each repetition with its own questions and passages."""
    for number in range(count):
        case, turn = made[number % len(made)], number // len(made)
        response_id = f"{case.response.id}#{turn}"
        first, *others = case.instance.evidence
        yield JudgedCase(
            replace(
                case.instance,
                id=f"{case.instance.id}#{turn}",
                question=f"{case.instance.question} ({turn})",
                evidence=(replace(first, text=f"{first.text} ({turn})"), *others),
            ),
            replace(case.response, id=response_id, instance_id=f"{case.instance.id}#{turn}"),
            replace(case.judgment, response_id=response_id),
        )


def build(path: Path, count: int) -> float:
    """Build the index, and return the seconds that took."""
    from tests.diagnosis.report.making import make_cases, make_diagnosis, make_questions  # noqa: PLC0415

    from eclose.diagnosis.report.context import ReportContext  # noqa: PLC0415
    from eclose.diagnosis.report.explorer.sample import RunSample  # noqa: PLC0415
    from eclose.diagnosis.report.first_screen import find_worst_example  # noqa: PLC0415
    from eclose.diagnosis.report.html import ExplorerPayload, ReportPage, compress_json, render_page  # noqa: PLC0415
    from eclose.diagnosis.report.view.build import build_view_index  # noqa: PLC0415

    made = make_cases(make_questions(MADE // 4), MADE)
    diagnosis, worst = make_diagnosis(made), find_worst_example(made)

    def render(data: dict[str, Any]) -> str:
        page = ReportPage(ExplorerPayload(compress_json(data), (), ()), worst, (), RunSample((), count), served=True)
        return render_page(diagnosis, page, ReportContext())

    start = time.perf_counter()
    build_view_index(path, repeat_cases(made, count), key="perf", render=render, notify=print_progress)
    return time.perf_counter() - start


def print_progress(written: int) -> None:
    if written % 64_000 == 0:
        print(f"  {written:,} indexed, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB", flush=True)


STATUS = "document.querySelector('#status').textContent"


def measure(browser: Any, url: str) -> dict[str, float]:
    """Measure the seconds of each step of a visit, and the memory at its end in MB."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(url)
    tab.wait_for_selector("html[data-ready]")
    paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    ready = tab.evaluate("performance.getEntriesByName('explorer-ready')[0].startTime")
    figures = {"first paint": paint / 1000, "list shown": ready / 1000}
    everything = tab.evaluate(STATUS)
    figures["filter by outcome"] = act(tab, lambda: tab.select_option("select[name=outcome]", "gap"), everything)
    figures["filter by model too"] = act(tab, lambda: tab.select_option("select[name=model]", "atlas-8b"))
    figures["clear"] = act(tab, lambda: tab.click("#clear"))
    figures["sort by question"] = act(tab, lambda: tab.select_option("#sort", "question"), changes=False)
    figures["next page"] = act(tab, lambda: tab.click("#page-on"), changes=False)
    figures["search of a rare word"] = act(tab, lambda: tab.fill("#search", "1999"))
    figures["search of a common word"] = act(tab, lambda: tab.fill("#search", "atlas-8b"))
    figures["MB in use"] = tab_memory(context, tab)
    context.close()
    return figures


def act(tab: Any, action: Any, before: str | None = None, *, changes: bool = True) -> float:
    """Perform the action and return the seconds until the server's answer is on the page."""
    before = tab.evaluate(STATUS) if before is None else before
    start = time.perf_counter()
    with tab.expect_response(lambda reply: "/rows?" in reply.url):
        action()
    while tab.evaluate(STATUS).endswith("\u2026") or (changes and tab.evaluate(STATUS) == before):
        time.sleep(0.005)
    return time.perf_counter() - start


def measure_server(index: Any) -> float:
    """Print the processor time of the server for each kind of request; return that of a filter in milliseconds."""
    from eclose.diagnosis.report.view.query import ResponseQuery  # noqa: PLC0415

    queries = {
        "whole list": ResponseQuery(),
        "filter": ResponseQuery({"outcome": "gap"}),
        "sort": ResponseQuery(sort="question"),
        "rare word": ResponseQuery(search="1999"),
        "common word": ResponseQuery(search="atlas-8b"),
    }
    spent = {}
    for name, query in queries.items():
        start = time.process_time()
        index.read_page(query, 0)
        spent[name] = 1_000 * (time.process_time() - start)
    print("processor time of the server: " + ", ".join(f"{name} {value:.0f} ms" for name, value in spent.items()))
    return spent["filter"]


def tab_memory(context: Any, tab: Any) -> float:
    """Return the proportional memory of all processes of the browser in MB, from the system."""
    session = context.browser.new_browser_cdp_session()
    numbers = [process["id"] for process in session.send("SystemInfo.getProcessInfo")["processInfo"]]
    tab.wait_for_timeout(100)
    total = 0
    for number in numbers:
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=10_000)
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--index", type=Path, help="file of the index; kept, and used again where it is there")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    from eclose.diagnosis.report.view.query import ViewIndex, read_index_key  # noqa: PLC0415
    from eclose.diagnosis.report.view.server import serve_view  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        path = options.index or Path(name) / "view.sqlite"
        seconds = None if read_index_key(path) == "perf" else build(path, options.responses)
        size = path.stat().st_size
        start = time.perf_counter()
        index = ViewIndex(path)
        opened = time.perf_counter() - start
        responses = index.total
        built = "built before" if seconds is None else f"built in {seconds:.0f} s"
        print(f"{responses:,} responses: index of {size / 1e6:.0f} MB, {built}, opened in {opened:.2f} s")
        # Another index: this one remembers what it has selected.
        server_milliseconds = measure_server(ViewIndex(path))
        with serve_view(index) as page, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            visits = [measure(browser, page.url) for _ in range(options.visits)]
            browser.close()
    for step in visits[0]:
        values = sorted(visit[step] for visit in visits)
        print(f"{step:>24}: median {statistics.median(values):.2f}, highest {values[-1]:.2f}")
    paint, choice, memory = (
        statistics.median(visit[step] for visit in visits) for step in ("list shown", "filter by outcome", "MB in use")
    )
    return print_result(
        name=f"eclose view of {responses:,} responses",
        value=round(paint, 2),
        unit="s until the list is shown",
        goal=f"< {PAINT_GOAL:g} s, filter < {FILTER_GOAL:g} s, memory < {MEMORY_GOAL} MB",
        holds=paint < PAINT_GOAL and choice < FILTER_GOAL and memory < MEMORY_GOAL,
        filter_seconds=round(choice, 3),
        filter_server_cpu_milliseconds=round(server_milliseconds),
        browser_megabytes=round(memory),
        index_megabytes=round(size / 1e6),
        index_seconds=None if seconds is None else round(seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
