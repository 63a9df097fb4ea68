"""The compact memory of ids agrees with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eclose.files.id_set import SeenIds

notes = st.lists(
    st.tuples(st.text(max_size=3), st.sampled_from(["one", "two", b"three", {"b": 1, "a": 2}])), max_size=60
)


@given(notes)
def test_agrees_with_a_dictionary(pairs):
    id_set, entries = SeenIds(), {}
    for position, (id_, content) in enumerate(pairs, start=1):
        expected = None if id_ not in entries else (entries[id_][0], entries[id_][1] == content)
        entries.setdefault(id_, (position, content))
        assert id_set.add(id_, content, position) == expected
    assert len(id_set) == len(entries)


def test_remembers_through_growth():
    ids = SeenIds()
    for number in range(5_000):
        assert ids.add(f"id-{number}", number, number + 1) is None
    assert len(ids) == 5_000
    for number in range(5_000):
        assert ids.add(f"id-{number}", number, 9_999) == (number + 1, True)
        assert ids.add(f"id-{number}", "else", 9_999) == (number + 1, False)


def test_the_order_of_keys_is_no_difference_in_content():
    ids = SeenIds()
    ids.add("a", {"x": 1, "y": 2}, 1)
    assert ids.add("a", {"y": 2, "x": 1}, 2) == (1, True)
