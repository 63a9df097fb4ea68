"""Rows of a caller's table as a JSON Lines file: lists of dicts, data frames, Arrow tables and datasets."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import is_conversation, open_bytes, require_regular_file
from eclose.files.jsonl import encode_json_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eclose.values.three_valued import Label


Rows: TypeAlias = "Iterable[Mapping[str, Any]] | Any"
"""A list of dicts, a list of records such as ``Instance``, or a table of pandas, Polars, PyArrow or ``datasets``."""


def ensure_data_file(data: Path | str | Rows, folder: Path, name: str = "rows.jsonl", *, force: bool = False) -> Path:
    """Return the path that ``data`` is, or write its rows to ``folder`` and return the path of the file.

    Raises:
        SettingError: ``data`` is neither a path nor rows.
        UserError: Unless forced, the file exists with other rows: a run's folder belongs to one input.
    """
    if isinstance(data, str | Path):
        return Path(data)
    path = folder / name
    content = "".join(f"{line}\n" for line in _lines(data)).encode()
    # The same rows again are the same run, which continues; other rows would mix two inputs in one folder.
    if path.exists() and path.read_bytes() != content and not force:
        raise UserError(f"{path}: holds other rows. Choose another folder for other data, or remove this one.")
    folder.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path) as file:
        file.write(content)
    return path


def _lines(data: Rows) -> Iterator[str]:
    for number, row in enumerate(iterate_table_rows(data), start=1):
        if is_dataclass(row) and not isinstance(row, type):
            # An Instance or another record of this package, as its files hold it.
            yield encode_json_line(row).decode()
            continue
        try:
            # Infinities are not JSON: the strict reader of this file would refuse them.
            yield json.dumps(make_plain(read_row_columns(row, number)), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise SettingError(f"row {number}: holds an infinite number, which JSON does not have.") from error


def read_row_columns(row: Any, number: int) -> Mapping[str, Any]:
    """Return the columns of a row; those of a conversation are its messages.

    Raises:
        SettingError: The row is no dict of columns.
    """
    columns = {"messages": row} if is_conversation(row) else row
    if not isinstance(columns, Mapping):
        raise SettingError(f"row {number}: is of type {type(row).__name__}. Rows are dicts of columns and values.")
    return columns


def iterate_table_rows(data: Rows) -> Iterator[Any]:
    """Yield the rows of a table as dicts, and the items of a list as they are.

    Raises:
        SettingError: ``data`` has no rows to iterate over.
    """
    if isinstance(data, Mapping):
        raise SettingError("data is one dict: give a list of dicts, one for each response.")
    if hasattr(data, "to_pylist"):  # PyArrow
        rows: Any = data.to_pylist()
    elif hasattr(data, "iter_rows"):  # Polars
        rows = data.iter_rows(named=True)
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        rows = data.to_dict("records")
    else:  # lists, generators and Hugging Face datasets
        rows = data
    if not isinstance(rows, Iterable):
        raise SettingError(f"data is a {type(data).__name__}: give a path, a list of dicts, or a table.")
    yield from rows


def make_plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays become lists, NumPy scalars numbers, missing numbers null."""
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(key): make_plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, pandas series
        return make_plain(value.tolist())
    if isinstance(value, Iterable):
        return [make_plain(item) for item in value]
    return None if str(value) in ("<NA>", "NaT") else str(value)


def name_own_columns(rows: Iterable[Mapping[str, Any]], reserved: Collection[str]) -> dict[str, str]:
    """Return the name in a table of each of the user's own columns: with ``own_`` before one that is taken there.

    Names that differ in case alone count as the same one, as they do in SQL.
    """
    used = {name.lower() for name in reserved}
    names: dict[str, str] = {}
    for column in dict.fromkeys(column for row in rows for column in row):
        name = column
        while name.lower() in used:
            name = f"own_{name}"
        used.add(name.lower())
        names[column] = name
    return names


def infer_column_types(rows: Iterable[Mapping[str, Any]], before: Mapping[str, type] | None = None) -> dict[str, type]:
    """Return bool, int, float or str for each column of JSON values; str where they differ or are nested.

    Args:
        rows: The rows; one may lack a column.
        before: Types of earlier rows, which those of these rows have to hold as well.
    """
    types = dict(before or {})
    for row in rows:
        for name, value in row.items():
            if value is None:
                continue
            small = type(value) is int and abs(value) < 2**63
            kind = type(value) if small or type(value) in (bool, float) else str
            if (earlier := types.setdefault(name, kind)) is not kind:
                types[name] = float if {earlier, kind} == {int, float} else str
    return types


def fit_column_type(value: Any, kind: type) -> Any:
    """Return a JSON value as one of a column of this type; as JSON in a column of texts."""
    if value is None or type(value) is kind:
        return value
    return float(value) if kind is float else json.dumps(value, ensure_ascii=False)


# CSV tables for spreadsheets, protected against formula injection.
#
# A text that a spreadsheet would run as a formula is written with a leading quote, which marks it as text; reading
# removes the quote. Numbers stay numbers.


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
    # A user's own columns are named by what a file holds.
    writer.writerow({name: escape_formula(name) for name in columns})
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
    # The most frequent candidate in the header, since no column name contains one. Spreadsheets of locales with a
    # decimal comma write semicolons.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=text.partition("\n")[0].count))
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
