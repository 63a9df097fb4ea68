"""The index of a run: built once, and again when a file changes."""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.request import urlopen

import pytest

from eclose.demo import DemoRun
from eclose.diagnosis import view_run
from eclose.diagnosis.report.view.query import ViewIndex
from eclose.diagnosis.results import diagnose
from eclose.diagnosis.view_run import VIEW_INDEX_FILE, make_view_index, view, write_view_index
from eclose.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view") / "demo"
    DemoRun(folder, 30).write()
    return folder


def test_an_index_is_built_once_and_again_when_a_file_changes(run):
    path = make_view_index(run)
    assert path == run / "report" / VIEW_INDEX_FILE
    built = path.stat().st_ino
    assert make_view_index(run).stat().st_ino == built
    file = run / "judgments.jsonl"
    os.utime(file, ns=(1, 1))
    assert make_view_index(run).stat().st_ino != built


def test_the_page_is_that_of_the_report_without_its_responses(run, tmp_path):
    pytest.importorskip("uvicorn")
    path = tmp_path / "elsewhere.sqlite"
    with view(run, index=path) as page, urlopen(page.url, timeout=10) as reply:
        text = reply.read().decode()
    assert path.exists()
    assert "Of 60 responses" in text
    assert "connect-src &#39;self&#39;" in text
    assert 'id="details-0"' not in text
    assert 'id="sample"' not in text


def test_an_index_with_fewer_responses_than_the_rates_is_refused(run, tmp_path):
    results = diagnose(run)
    with pytest.raises(UserError, match="59 of 60 responses were read"):
        write_view_index(tmp_path / "view.sqlite", results, "k", print, cases=iter(results.cases[:-1]))
    assert list(tmp_path.iterdir()) == []


def test_a_sample_in_the_results_does_not_shorten_the_index(run, tmp_path, monkeypatch):
    results = diagnose(run)
    monkeypatch.setattr(view_run, "diagnose", lambda *_, **__: replace(results, cases=results.cases[:7]))
    index = ViewIndex(make_view_index(run, index=tmp_path / "view.sqlite"))
    assert index.total == 60
    index.close()


def test_a_folder_without_judgments_is_refused(tmp_path):
    with pytest.raises(UserError):
        make_view_index(tmp_path)
    assert list(tmp_path.iterdir()) == []
