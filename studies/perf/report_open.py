"""Time to open a report of 30,000 responses to 900 questions in a browser; the goal is under two seconds.

Makes the responses in the world, writes the page, and opens it from disk in headless Chromium, each time in a fresh
context: from the start of the navigation until the list stands, and then until a key, a filter and a search of all
texts have done their work. The last line is the figure as JSON. Needs playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from studies.perf.result import print_result

GOAL = 2.0
STATUS = "document.querySelector('#status').textContent"
FEWER = f"((told) => told[1] !== told[2])({STATUS}.match(/^(\\S+) of (\\S+)/))"


def write_page(path: Path, responses: int, questions: int) -> float:
    """Write the page and return the seconds that took, without making the data."""
    from eclose.report.formats.html_page import render_report_page  # noqa: PLC0415
    from tests.report.making import make_cases, make_diagnosis, make_questions  # noqa: PLC0415

    cases = make_cases(make_questions(questions), responses)
    diagnosis = make_diagnosis(cases)
    start = time.perf_counter()
    path.write_text(render_report_page(diagnosis, cases), "utf-8")
    return time.perf_counter() - start


def measure(browser: Any, path: Path) -> dict[str, float]:
    """Measure the seconds of each step of a visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    ready = tab.evaluate("performance.getEntriesByName('explorer-ready')[0].startTime")
    seconds = {"open": ready / 1000}
    seconds["key"] = act(
        tab, lambda: tab.keyboard.press("j"), "document.querySelector('#row-1[aria-selected=true]') !== null"
    )
    seconds["filter"] = act(tab, lambda: tab.select_option("select[name=outcome]", "gap"), f"{FEWER}")
    tab.click("#clear")
    condition = f"!{STATUS}.includes('reading') && {FEWER}"
    seconds["search of all texts"] = act(tab, lambda: tab.fill("#search", "therefore"), condition)
    context.close()
    return seconds


def act(tab: Any, action: Any, condition: str) -> float:
    """Perform the action and return the seconds until the condition holds in the page."""
    start = time.perf_counter()
    action()
    while not tab.evaluate(condition):
        time.sleep(0.005)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=30_000)
    parser.add_argument("--questions", type=int, default=900)
    parser.add_argument("--visits", type=int, default=5)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        path = Path(name) / "report.html"
        written = write_page(path, options.responses, options.questions)
        size = path.stat().st_size
        print(f"{options.responses:,} responses: {size / 1e6:.1f} MB, {size / options.responses:.0f} bytes each, "
              f"written in {written:.1f} s")  # fmt: skip
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        visits = [measure(browser, path) for _ in range(options.visits)]
        browser.close()
    for step in visits[0]:
        times = sorted(visit[step] for visit in visits)
        print(f"{step:>20}: median {statistics.median(times):.2f} s, slowest {times[-1]:.2f} s")
    value = statistics.median(visit["open"] for visit in visits)
    return print_result(
        name=f"opening a report of {options.responses:,} responses",
        value=round(value, 2),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=value < GOAL,
        megabytes=round(size / 1e6, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
