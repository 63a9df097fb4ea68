"""Short form of ``studies/campaigns/read_fuzz.py``: random inputs end in a reading or an error that names its cause."""

from __future__ import annotations

from studies.campaigns import read_fuzz


def test_random_inputs_are_read_or_refused_and_none_is_lost():
    outcomes = read_fuzz.read_all(400, seed=5)
    assert outcomes["crashes"] == 0
    assert outcomes.total() == 400
    assert min(outcomes["readings"], outcomes["errors"]) > 20


def test_crash_of_the_reader_is_counted(monkeypatch):
    def crash(*_):
        raise IndexError("list index out of range")

    monkeypatch.setattr(read_fuzz, "read_response", crash)
    assert read_fuzz.read_all(3, seed=5) == {"crashes": 3}
