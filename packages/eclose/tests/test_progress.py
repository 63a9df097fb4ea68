"""Progress of long work: shown in a terminal or a notebook, told to a function, and else not at all."""

from __future__ import annotations

import io
import sys
import time
import types

import pytest

import eclose
from eclose import progress
from eclose.progress import Progress, show_progress
from eclose_world.demo import write_demo_files
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

FREE = eclose.CallSettings(unpriced=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def count_to(total):
    counted = iter(range(total + 1))
    return lambda: Progress(done=(done := next(counted)), total=total, text=f"{done} of {total}")


def test_function_is_called_while_the_work_lasts_and_at_its_end(monkeypatch):
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.01)
    told = []
    with show_progress(told.append, count_to(1_000)):
        while len(told) < 3:
            time.sleep(0.01)
    assert [each.done for each in told] == list(range(len(told)))


def test_function_is_called_at_the_end_of_work_that_fails():
    told = []
    with pytest.raises(ValueError, match="broken"), show_progress(told.append, count_to(5)):
        raise ValueError("broken")
    assert len(told) == 1


@pytest.mark.parametrize("option", [True, False])
def test_nothing_is_shown_off_a_terminal(monkeypatch, option):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with show_progress(option, count_to(5)):
        pass
    assert stream.getvalue() == ""


@pytest.mark.parametrize("option, shown", [(True, True), (False, False)])
def test_last_state_stays_in_a_terminal(monkeypatch, option, shown):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with show_progress(option, count_to(5)):
        pass
    assert ("0 of 5" in stream.getvalue()) is shown


def test_notebook_shows_progress_in_one_place(monkeypatch):
    shown = []
    display = types.SimpleNamespace(update=lambda content, **_options: shown.append(content["text/plain"]))
    kernel = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    displayed = types.SimpleNamespace(display=lambda *_args, **_options: display)
    monkeypatch.setitem(sys.modules, "IPython.display", displayed)
    with show_progress(True, count_to(5)):
        pass
    assert shown == ["0 of 5"]


@pytest.mark.slow
def test_evaluate_and_generate_tell_their_progress(tmp_path):
    write_demo_files(tmp_path / "demo", 4)
    with ModelServerThread(build_world_handlers()) as server:
        generated, judged = [], []
        eclose.generate(
            tmp_path / "demo" / "instances.jsonl",
            model=server.base_url,
            out=tmp_path / "run",
            calls=FREE,
            progress=generated.append,
        )
        eclose.evaluate(tmp_path / "run", judge=server.base_url, calls=FREE, progress=judged.append)
    assert str(generated[-1]).startswith("4/4 (100 %)")
    assert "4 judged" in str(judged[-1])


@pytest.mark.slow
def test_observer_of_the_options_takes_precedence(tmp_path):
    write_demo_files(tmp_path / "demo", 2)
    entered, told = [], []

    def watch(*arguments):
        entered.append(arguments)
        return show_progress(False, lambda: Progress(done=0, total=0, text=""))

    with ModelServerThread(build_world_handlers()) as server:
        eclose.evaluate(
            tmp_path / "demo",
            judge=server.base_url,
            calls=FREE,
            options=eclose.RunOptions(watch=watch, force=True),
            progress=told.append,
        )
    assert (len(entered), told) == (1, [])
