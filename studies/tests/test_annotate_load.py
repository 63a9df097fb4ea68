"""Tests of ``studies/perf/annotate_load.py``, and of what keeps the annotation server fast."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eclose_annotate.web import pages
from eclose_annotate.web.serve import _listen
from studies.campaigns.annotators.server import percentile

SCRIPT = Path(__file__).parents[1] / "perf" / "annotate_load.py"


def test_the_value_that_so_many_do_not_exceed():
    assert percentile(range(1, 101), 0.95) == 96
    assert percentile([3.0, 1.0], 0.5) == 3.0
    assert percentile([3.0, 1.0], 1.0) == 3.0
    assert math.isnan(percentile([], 0.5))


def test_small_packets_do_not_wait_for_each_other():
    # Python's event loop looks for this before it turns the waiting off.
    with _listen(0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_guideline_is_made_into_markup_once():
    assert pages.render_guideline("*one* text") is pages.render_guideline("*one* text")


@pytest.mark.slow
def test_seven_people_work_for_a_moment_and_nothing_fails():
    command = [sys.executable, str(SCRIPT), "--users", "7", "--questions", "6", "--seconds", "3", "--warm-up", "0.5"]
    process = subprocess.run([*command, "--waiting", "4"], check=False, capture_output=True, text=True)
    figure = json.loads(process.stdout.splitlines()[-1])
    assert figure["unit"].endswith("requests; 0 failed"), process.stdout + process.stderr
    assert figure["value"] > 0
