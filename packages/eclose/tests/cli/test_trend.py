"""``eclose trend`` and ``eclose gate --trend``: table, JSON, page and exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.diagnosis.label_file import write_labels
from eclose.values.instance import Passage
from eclose.values.response import Trace
from tests.diagnosis.test_trend import BAD, GOOD, run_of, timed
from tests.test_testing import written


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trend") / "run"
    folder.mkdir()
    cases = [*run_of(*[GOOD] * 30, *[BAD] * 10, "ru"), timed(run_of("r")[0], 9_999, None)]
    complete = [replace(one, instance=replace(one.instance, evidence=(Passage("0", "", "x"),))) for one in cases]
    return written(folder, [replace(one, response=replace(one.response, trace=Trace.of("s"))) for one in complete])


def call(*words):
    result = CliRunner().invoke(app, [*map(str, words)])
    return result.exit_code, result.output


def test_a_trend_is_a_table_with_the_responses_apart_and_the_alarm(run):
    code, output = call("trend", run, "--metric", "LGG", "--limit", 0.05)
    lines = output.splitlines()
    assert code == 0
    assert lines[1] == f"{run}: LGG of 2,002 responses in 41 windows of 1d"
    assert re.split(r" {2,}", lines[2].strip()) == [
        "window (UTC)",
        "responses",
        "questions",
        "unjudged",
        "LGG",
        "above",
        "below",
    ]
    assert lines[3].strip().startswith("2026-11-02")
    assert "2.0 % [" in lines[3]
    assert "too little judged" in lines[-3]
    assert lines[-2] == "1 response without a time, in no window"
    assert re.fullmatch(r"LGG at most 5\.0 %: alarm at the end of the window of 2026-12-0\d", lines[-1])


def test_a_trend_without_an_alarm_says_so(run):
    assert call("trend", run, "--limit", 0.5, "--by", "1w")[1].endswith("TRR at least 50.0 %: no alarm\n")


def test_the_json_of_a_trend_is_what_the_function_returns(run):
    code, output = call("trend", run, "--by", "12h", "--json")
    result = eclose.trend(run, by="12h")
    assert (code, json.loads(output)) == (0, result.to_dict())
    last = result.to_dict()["windows"][-1]
    assert (last["rate"], last["unjudged"], last["span"]) == (1.0, 1, [0.5, 1.0])
    assert (result.alarm, result.to_dict()["without_time"]) == (False, 1)


def test_the_page_of_a_trend_has_the_plot_and_the_table_without_a_script(run, tmp_path):
    page = tmp_path / "trend.html"
    code, output = call("trend", run, "--metric", "LGG", "--limit", 0.05, "--page", page)
    html = page.read_text()
    assert (code, output.splitlines()[-1]) == (0, f"{page}: written")
    # Half of the responses of the last window are not judged, too many for a dot.
    assert (html.count("<circle"), html.count("<tr><td>")) == (40, 41)
    assert "alarm at the end of the window of 2026-12-0" in html
    assert "Without a time, and in no window: 1." in html
    assert "<script" not in html
    assert html.count("<!doctype html>") == 1


def test_a_table_of_labels_has_the_trend_of_its_run(run, tmp_path):
    pytest.importorskip("pyarrow")
    write_labels(run, tmp_path / "labels.parquet")
    from_table = eclose.trend(tmp_path / "labels.parquet", limit=0.9)
    assert from_table.trend == eclose.trend(run, limit=0.9).trend


@pytest.mark.parametrize(("limits", "code"), [(["--max-lgg", 0.05], 100), (["--min-trr", 0.5, "--max-lgg", 0.3], 0)])
def test_the_gate_of_a_trend_exits_as_the_gate_does(run, limits, code):
    status, output = call("gate", run, "--trend", *limits)
    assert status == code
    assert "windows of 1d, by the judge's own labels; 1 response without a time in no window." in output
    assert "limits are held at once" not in output
