"""Responses of the world, made once, and a browser where there is one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.report.making import make_cases, make_diagnosis, make_questions

from eclosure.report.html import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eclosure.diagnose import Case, Diagnosis


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return make_cases(make_questions(12), 96)


@pytest.fixture(scope="session")
def diagnosis(cases: list[Case]) -> Diagnosis:
    return make_diagnosis(cases)


@pytest.fixture(scope="session")
def report(cases: list[Case], diagnosis: Diagnosis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the cases, unvalidated."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(diagnosis, cases), "utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium. For one module: while it is open an event loop runs, and no test could run another."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
