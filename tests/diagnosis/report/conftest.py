"""Responses of the world, made once, and a browser where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chromium import browser
from tests.diagnosis.report.making import make_cases, make_diagnosis, make_questions

from eclose.diagnosis.report.html import render_report_page

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
