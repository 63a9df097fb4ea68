"""Responses of the world, made once, and a browser where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eclose.report.formats.html_page import render_report_page
from tests.chromium import browser
from tests.report.making import make_cases, make_diagnosis, make_questions

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase


__all__ = ["browser"]


@pytest.fixture(scope="session")
def cases() -> list[JudgedCase]:
    return make_cases(make_questions(12), 96)


@pytest.fixture(scope="session")
def diagnosis(cases: list[JudgedCase]) -> Diagnosis:
    return make_diagnosis(cases)


@pytest.fixture(scope="session")
def report(cases: list[JudgedCase], diagnosis: Diagnosis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the cases, unvalidated."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report_page(diagnosis, cases), "utf-8")
    return path
