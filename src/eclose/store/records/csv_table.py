"""Tables for spreadsheets: CSV that runs nothing where it is opened, and the same read back.

A text that a spreadsheet would take for a formula gets a quote before it, which makes it a text there; reading takes
the quote off again. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, TypeAlias

from eclose.errors import UserError
from eclose.store.records.json_reader import open_bytes, require_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose.core.three_valued import Label

CsvCell: TypeAlias = str | int | float | bool | None
"""What a table may hold. A label is written yes or no, what is not there as nothing."""

LABEL_WORDS: Mapping[str, Label] = {
    "yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False, "": None,
}  # fmt: skip
"""How people write a label, in small letters."""

# With the full-width signs, which some spreadsheets read as the plain ones.
_STARTS_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def escape_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if _risky(text.lstrip("'")) else text


def unescape_formula(text: str) -> str:
    """The text of a neutral one."""
    return text[1:] if text.startswith("'") and _risky(text.lstrip("'")) else text


def _risky(text: str) -> bool:
    return text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_STARTS_FORMULA)


def encode_csv(columns: Sequence[str], rows: Iterable[Mapping[str, CsvCell]]) -> Iterator[bytes]:
    """The bytes of a table, a row at a time. By the mark at its start spreadsheets know UTF-8."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    text.seek(0)
    yield text.read().encode("utf-8-sig")
    for row in rows:
        text.seek(0)
        text.truncate()
        writer.writerow({name: _written(cell) for name, cell in row.items()})
        yield text.getvalue().encode()


def _written(cell: CsvCell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else escape_formula(cell) if isinstance(cell, str) else str(cell)


def read_csv(path: Path) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """The names of the columns, and every row that is not empty with where it stands; cells as they are written."""
    require_file(path)
    with open_bytes(path) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8. Save the table as CSV UTF-8.") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise _unreadable(path, error) from error
    return header, _rows(path, reader, header)


def _rows(path: Path, reader: Iterator[list[str]], header: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        for number, row in enumerate(reader, start=2):
            if any(cell.strip() for cell in row):
                yield f"row {number}", dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: csv.Error) -> UserError:
    return UserError(f"{path}: is not a table that can be read ({error}). Save it as CSV UTF-8 again.")


def _delimiter(text: str) -> str:
    """Where a comma marks decimals, spreadsheets write semicolons. No name of a column has either."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count)
