"""Options, keys of JSON files and the demonstration's outputs are those of ``tests/expected``."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def pins():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("pins")


@pytest.mark.slow
def test_pinned_files_are_what_the_program_makes_today(pins):
    assert pins.compare_pins(pins.make_pins()) == "", "after a wanted change run `python scripts/pins.py --write`"


def test_a_renamed_key_and_a_new_option_are_differences(pins):
    expected = {path.name: path.read_text("utf-8") for path in pins.EXPECTED.iterdir()}
    assert pins.compare_pins(expected) == ""
    changed = {
        **expected,
        "json_keys.txt": expected["json_keys.txt"].replace("interval", "limits", 1),
        "options.txt": expected["options.txt"].replace("--min-trr", "--least-trr"),
    }
    difference = pins.compare_pins(changed)
    assert "-    --min-trr <float>" in difference
    assert "+    --least-trr <float>" in difference
    assert "tests/expected/json_keys.txt" in difference


def test_names_of_data_are_no_keys(pins):
    value = {"rates": {"gpt-4.1": {"n": 1}, "llama 3": {"n": 2, "hits": 0}}}
    assert set(pins.list_objects(value)) == {"rates", "*", "n", "hits n"}
