"""Where words end, and when two spellings are of the same value."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.answers import (
    TextSpan,
    equal_up_to_spelling,
    find_exact_spans,
    find_respelled_spans,
    is_whole_word_span,
)
from tests.growth import grows_in_proportion
from tests.tables import each_row

# The word in braces is whole in its text.
WHOLE = [
    "in {Paris}.", "{Paris}'s bars", "{Paris}’s bars", "the {Jones}' car", "'{Paris}' is", "“{Paris}”", "({1930})",
    "${5} million", "{10}%", "{1939}–1945", "1939–{1945}", "{5}–5", "{Paris}–Rome", "{Paris} - Rome", "pre-{ } x",
    "born in {Paris}.He left", "{東京}都", "は{東京}", "{1930}年", "{Ada}東京", "in the {U.S.} Senate", "{a}/b",
    "{5}, 6", "in {1930},1931", "{パリ}は", "{Paris}", "{'Allo}", "{🇫🇷}🇩🇪", "🇫🇷{🇩🇪}", "{👍🏽}", "{각} 가", "{क्षि}",
]  # fmt: skip
# The word in braces is only a part.
PART = [
    "{Paris}ian", "com{Paris}", "{Paris}-based", "Jean-{Paul}", "O'{Brien}", "{don}'t", "d’{Arc}", "{1930}s", "{5}th",
    "{5}.5", "1,{500}", "{1},500", "{10}:30", "{1930}-05-03", "{1998}–99", "1998–{99}", "{1}/2", "{AT}&T", "{U.S}.A.",
    "{U}.S.", "U.S.{Army}", "{snake}_case", "{e}\u0301", "{Caf}é", "Caf{e}\u0301s", "{👨}\u200d👩", "👨\u200d{👩}",
    "{👍}🏽", "{🇫}🇷🇩🇪", "🇫{🇷🇩}🇪", "{パリ}ス", "{パ}ー", "{\u1100}\u1161", "{\u1100}\u1100", "{\u1100}가", "{파리}는",
    "{क्}ष", "{ក្}ខ", "{ก}ำ", "soft{ly}\u00adso", "a{\r}\n", "{Levi}'sa",
]  # fmt: skip


def place_of(marked):
    start, end = marked.index("{"), marked.index("}")
    return marked.replace("{", "").replace("}", ""), TextSpan(start, end - 1)


@pytest.mark.parametrize("marked", WHOLE)
def test_span_between_words_is_whole(marked):
    assert is_whole_word_span(*place_of(marked))


@each_row(PART)
def test_span_within_a_word_is_not_whole(marked):
    assert not is_whole_word_span(*place_of(marked))


def test_overlapping_places_are_all_found():
    assert list(find_exact_spans("aaa", "aa")) == [TextSpan(0, 2), TextSpan(1, 3)]
    assert TextSpan(0, 2).overlaps(TextSpan(1, 3))
    assert not TextSpan(0, 2).overlaps(TextSpan(2, 3))


# The old value, a text, and what of the text is the old value.
SPELLED = [
    ("Paris", "PARIS, paris and Parisian", ["PARIS", "paris"]),
    ("Paris", "Paris-based, non-Paris", ["Paris", "Paris"]),
    ("Café Noir", "CAFE NOIR; Cafe\u0301 noir", ["CAFE NOIR", "Cafe\u0301 noir"]),
    ("Café Noir", "Café-Noir; CaféNoir; noir café", ["Café-Noir", "CaféNoir"]),
    ("Łódź", "Lodz", ["Lodz"]),
    ("Straße", "STRASSE", ["STRASSE"]),
    ("Ağrı", "Agri", ["Agri"]),
    ("O'Brien", "O’Brien and OBrien but not Brien", ["O’Brien", "OBrien"]),
    ("Levi's", "Levis", ["Levis"]),
    ("Ada", "Ada's", ["Ada"]),
    ("U.S.", "US, U. S., u.s., told us, USA", ["US", "U. S", "u.s"]),
    ("US", "the U.S. told us", ["U.S"]),
    ("J. R. R. Tolkien", "J.R.R. Tolkien, JRR Tolkien", ["J.R.R. Tolkien", "JRR Tolkien"]),
    ("Simon & Simon", "Simon and Simon", ["Simon and Simon"]),
    ("“Hello, Dolly!”", "Hello Dolly", ["Hello Dolly"]),
    ("3 May 1930", "May 3, 1930", ["May 3, 1930"]),
    ("3 May 1930", "1930-05-03; 3rd of May, 1930; May 3rd 1930; 3 MAY 1930; 03 May 1930", [
        "1930-05-03", "3rd of May, 1930", "May 3rd 1930", "3 MAY 1930", "03 May 1930"]),
    ("May 3, 1930", "4 May 1930, 3 May 1931, 3 May, May 1930, May 31, 1930", []),
    ("1930-09-03", "Sept. 3, 1930 and 3 Sep 1930", ["Sept. 3, 1930", "3 Sep 1930"]),
    ("3 May", "on May 3 and 3 May 1930", ["May 3"]),
    ("on 3 May 1930 in Lund", "On May 3, 1930, in Lund", ["On May 3, 1930, in Lund"]),
    ("1930", "1930-05-03, 1930s, 1930–31", ["1930", "1930"]),
    ("May 31 930", "May 3, 1930", []),
    ("five", "5, 5.5, 15, 5th, V", ["5"]),
    ("5", "five, Five, fifth", ["five", "Five"]),
    ("21", "twenty-one, Twenty One, twenty- one, twenty, one, 2 1", ["twenty-one", "Twenty One", "twenty- one"]),
    ("twenty", "20, twenty-one", ["20"]),
    ("first", "1st, First", ["1st", "First"]),
    ("21st", "twenty-first", ["twenty-first"]),
    ("12th", "twelfth", ["twelfth"]),
    ("30th", "thirtieth", ["thirtieth"]),
    ("zero", "0", ["0"]),
    ("1", "one of them", []),
    ("1,500", "1500 and 1.500", ["1500"]),
    ("10:30", "10:30, 1030, 10", ["10:30"]),
    ("東京", "東京都", ["東京"]),
    ("か", "が", []),
    ("कि", "की", []),
    ("soft", "so\u00adft", ["so\u00adft"]),
    ("?!", "what?!", []),
    ("", "what", []),
]  # fmt: skip


@pytest.mark.parametrize("old, text, expected", SPELLED, ids=[f"{old} in {text}" for old, text, _ in SPELLED])
def test_spelled(old, text, expected):
    assert [text[span.start : span.end] for span in find_respelled_spans(text, old)] == expected


def test_same_spelled():
    assert equal_up_to_spelling("U.S.", "US")
    assert equal_up_to_spelling("3 May 1930", "1930-05-03")
    assert not equal_up_to_spelling("3 May 1930", "3 May 1931")
    assert not equal_up_to_spelling("?", "!")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_a_text_is_found_in_its_own_normal_forms(text):
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert equal_up_to_spelling(*forms) or not list(find_respelled_spans(text, text))


@given(st.text(max_size=60), st.text(max_size=4))
def test_places_lie_in_the_text_and_follow_each_other(text, old):
    places = list(find_respelled_spans(text, old))
    assert all(0 <= position.start < position.end <= len(text) for position in places)
    assert places == sorted(places)


@pytest.mark.slow
def test_a_long_text_takes_time_in_proportion():
    assert grows_in_proportion(
        lambda text: list(find_respelled_spans(text, "Ada Ada Ada Bo")), "Ada Ada 1930–31 e\u0301 ", 2_000
    )
