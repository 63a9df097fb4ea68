"""CSV tables for spreadsheets, protected against formula injection.

A text that a spreadsheet would run as a formula is written with a leading quote, which marks it as text; reading
removes the quote. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, TypeAlias

from eclose.errors import UserError
from eclose.store.records.json_reader import open_bytes, require_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose.core.three_valued import Label

CsvCell: TypeAlias = str | int | float | bool | None
"""A value of a table. True and False are written as yes and no, None as an empty cell."""

LABEL_WORDS: Mapping[str, Label] = {
    "yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False, "": None,
}  # fmt: skip
"""Accepted spellings of a label, in lower case; an empty cell is an undefined label."""

TABLE_SUFFIXES = (".csv", ".tsv")
WORKBOOK_SUFFIXES = (".xlsx", ".xls", ".ods")
"""Endings of the names of tables that are read, and of those that must be saved as CSV first."""

# Includes the full-width forms (U+FF1D, ...), which some spreadsheets read like =, +, - and @.
_STARTS_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def escape_formula(text: str) -> str:
    """Return the text so that no spreadsheet runs it as a formula."""
    return f"'{text}" if _is_formula(text.lstrip("'")) else text


def unescape_formula(text: str) -> str:
    """Return the text without the quote that ``escape_formula`` added."""
    return text[1:] if text.startswith("'") and _is_formula(text.lstrip("'")) else text


def _is_formula(text: str) -> bool:
    return text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_STARTS_FORMULA)


def encode_csv(columns: Sequence[str], rows: Iterable[Mapping[str, CsvCell]]) -> Iterator[bytes]:
    """Yield the bytes of a table, a row at a time."""
    # Spreadsheets recognise UTF-8 by the byte order mark ("utf-8-sig").
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    text.seek(0)
    yield text.read().encode("utf-8-sig")
    for row in rows:
        text.seek(0)
        text.truncate()
        writer.writerow({name: _format_cell(cell) for name, cell in row.items()})
        yield text.getvalue().encode()


def _format_cell(cell: CsvCell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else escape_formula(cell) if isinstance(cell, str) else str(cell)


def read_csv(path: Path) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """Return the column names, and the non-empty rows with their location (``row 2`` is the first); cells as texts.

    Raises:
        UserError: The file is no table, or a row has another number of cells than the header.
    """
    require_regular_file(path)
    with open_bytes(path) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8. Save the table as CSV UTF-8.") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    try:
        # The csv module reads lazily, so a broken table raises here or while its rows are iterated.
        header = next(reader, [])
    except csv.Error as error:
        raise _unreadable(path, error) from error
    return header, _rows(path, reader, header)


def _rows(path: Path, reader: Iterator[list[str]], header: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        for number, row in enumerate(reader, start=2):
            if any(cell.strip() for cell in row):
                # In a row with a cell too few or too many, cells stand under other columns than their own.
                if len(row) < len(header) or any(cell.strip() for cell in row[len(header) :]):
                    raise UserError(
                        f"{path} row {number}: has {len(row)} cells, and the header {len(header)}. Fill in the missing "
                        "cells, and quote those that contain the separator."
                    )
                yield f"row {number}", dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: csv.Error) -> UserError:
    return UserError(f"{path}: is not a table that can be read ({error}). Save it as CSV UTF-8 again.")


def _delimiter(text: str) -> str:
    """Return the delimiter: the most frequent candidate in the header, since no column name contains one."""
    # Spreadsheets of locales with a decimal comma write semicolons.
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count)
