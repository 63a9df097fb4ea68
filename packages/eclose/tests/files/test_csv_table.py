"""A table runs nothing where it is opened, and says the same when it is read back."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import UserError
from eclose.files.tables import encode_csv, escape_formula, read_csv, unescape_formula

FORMULAS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "＝1", "＋1", "－1", "＠x", "  =1", "\t=1", "\tx", "\rx", "\nx", "\u00a0=1", "'=1",
    "''=1",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_become_texts(text):
    assert escape_formula(text) == f"'{text}"
    assert unescape_formula(escape_formula(text)) == text


@pytest.mark.parametrize("text", ["", "Paris", "1 + 1", "it's", "'quoted'", "a=b", "x\ty"])
def test_other_texts_are_left_alone(text):
    assert escape_formula(text) == unescape_formula(text) == text


@given(st.text(alphabet="'=+-@\uff1d \t\r\nab"))
def test_every_text_comes_back(text):
    assert unescape_formula(escape_formula(text)) == text
    assert not escape_formula(text).startswith(("=", "+", "-", "@", "\uff1d", "\t", "\r", "\n"))


def test_numbers_labels_and_gaps_are_written_as_such(tmp_path):
    rows = [{"a": -1, "b": -0.5, "c": True, "d": False, "e": None, "f": "-1"}]
    path = tmp_path / "t.csv"
    path.write_bytes(b"".join(encode_csv(list("abcdefg"), rows)))
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    reader = next(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))
    assert reader == {"a": "-1", "b": "-0.5", "c": "yes", "d": "no", "e": "", "f": "'-1", "g": ""}
    header, read = read_csv(path)
    assert header == list("abcdefg")
    assert list(read) == [("row 2", reader)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_of_any_spreadsheet_are_read_without_their_empty_rows(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    path.write_text(f"a{delimiter}b\n{delimiter} \n1{delimiter}x\n")
    assert list(read_csv(path)[1]) == [("row 3", {"a": "1", "b": "x"})]


@pytest.mark.parametrize(
    "data,problem", [(b"\xff\xfea", "UTF-8"), (b'a,b\n"' + b"x" * 200_000 + b'",1\n', "cannot|not a")]
)
def test_what_is_no_table_is_refused_in_a_sentence(tmp_path, data, problem):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(UserError, match=problem):
        list(read_csv(path)[1])


def test_a_header_that_is_no_header_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'"' + b"x" * 200_000 + b'"\n')
    with pytest.raises(UserError, match="not a table"):
        read_csv(path)
