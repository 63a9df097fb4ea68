"""Values have one canonical form and several surface forms, and each surface form reads back."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose_world.language.values import (
    MONTHS,
    ValueKind,
    draw_surface_form,
    extract_year,
    parse_answer_value,
    parse_value,
)

DATES = st.dates().map(lambda day: day.isoformat()).filter(lambda text: text[0] != "0")
NUMBERS = st.integers(0, 10**9).map(str)
VALUES = st.one_of(
    st.tuples(st.just(ValueKind.DATE), DATES),
    st.tuples(st.just(ValueKind.YEAR), st.integers(1000, 2100).map(str)),
    st.tuples(st.just(ValueKind.NUMBER), NUMBERS),
    st.tuples(st.just(ValueKind.MINUTES), st.integers(1, 900).map(str)),
)


@given(VALUES, st.integers(0, 20))
def test_every_value_reads_back_from_whatever_form_it_was_written_in(value, seed):
    kind, canonical = value
    assert parse_value(kind, draw_surface_form(kind, canonical, Random(seed))) == canonical


@given(VALUES, st.integers(0, 20))
def test_an_answer_of_unsaid_kind_reads_back_too(value, seed):
    kind, canonical = value
    assert parse_answer_value(draw_surface_form(kind, canonical, Random(seed))) == canonical


@pytest.mark.parametrize("month", range(1, 13))
def test_every_month_has_both_forms(month):
    name, canonical = MONTHS[month - 1], f"1950-{month:02d}-07"
    written = {draw_surface_form(ValueKind.DATE, canonical, Random(seed)) for seed in range(20)}
    assert written == {f"7 {name} 1950", f"{name} 7, 1950"}
    assert {parse_value(ValueKind.DATE, text) for text in written} == {canonical}


@pytest.mark.parametrize(
    ("kind", "canonical", "forms"),
    [
        (ValueKind.NUMBER, "96", {"96"}),
        (ValueKind.NUMBER, "1234", {"1234", "1,234"}),
        (ValueKind.NUMBER, "45600", {"45,600"}),
        (ValueKind.MINUTES, "45", {"45 minutes"}),
        (ValueKind.MINUTES, "60", {"60 minutes", "1 hour"}),
        (ValueKind.MINUTES, "61", {"61 minutes"}),
        (ValueKind.MINUTES, "95", {"95 minutes", "1 hour and 35 minutes"}),
        (ValueKind.MINUTES, "125", {"125 minutes", "2 hours and 5 minutes"}),
        (ValueKind.YEAR, "1971", {"1971"}),
        (ValueKind.NAME, "Tomas Rell", {"Tomas Rell"}),
    ],
)
def test_the_forms_of_a_value(kind, canonical, forms):
    assert {draw_surface_form(kind, canonical, Random(seed)) for seed in range(30)} == forms


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ValueKind.DATE, "1950"),
        (ValueKind.DATE, "7 Mai 1950"),
        (ValueKind.DATE, "1950-05-07"),
        (ValueKind.YEAR, "195"),
        (ValueKind.YEAR, "May 1950"),
        (ValueKind.NUMBER, "12,34"),
        (ValueKind.NUMBER, "many"),
        (ValueKind.MINUTES, "95"),
        (ValueKind.NAME, "the director"),
        (ValueKind.NAME, "Halmere and Brenholt"),
        (ValueKind.NAME, ""),
    ],
)
def test_what_is_not_of_the_kind_is_none(kind, text):
    assert parse_value(kind, text) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" 7 May 1950. ", "1950-05-07"),
        ("2 hours and 5 minutes", "125"),
        ("12 hours", "720"),
        ("12,345", "12345"),
        ("Tomas Rell.", "Tomas Rell"),
        ("Rell, Tomas", "Tomas Rell"),
        ("Rell, Tomas R", "Tomas R Rell"),
        ("Halmere, Karskland, Europe", "Halmere, Karskland, Europe"),
        ("yes", "yes"),
    ],
)
def test_an_answer_in_canonical_form(text, canonical):
    assert parse_answer_value(text) == canonical


@pytest.mark.parametrize("kind", list(ValueKind))
def test_writing_uses_up_the_same_randomness_whatever_the_value(kind):
    # An edited passage must differ in the value alone.
    after = set()
    for canonical in ("1950-05-07", "2001-11-30") if kind is ValueKind.DATE else ("7", "123456"):
        rng = Random(3)
        draw_surface_form(kind, canonical, rng)
        after.add(rng.random())
    assert len(after) == 1


def test_the_year_of_dates_and_years():
    assert (extract_year("1950-05-07"), extract_year("1971")) == (1950, 1971)
