"""Rows of a caller's table as a JSON Lines file: lists of dicts, data frames, Arrow tables and datasets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeAlias

from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.jsonl import encode_json_line
from eclose.store.records.strict_json import is_conversation

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
    for number, row in enumerate(_iterate_table_rows(data), start=1):
        if is_dataclass(row) and not isinstance(row, type):
            # An Instance or another record of this package, as its files hold it.
            yield encode_json_line(row).decode()
            continue
        columns = {"messages": row} if is_conversation(row) else row
        if not isinstance(columns, Mapping):
            raise SettingError(f"row {number}: is of type {type(row).__name__}. Rows are dicts of columns and values.")
        try:
            # Infinities are not JSON: the strict reader of this file would refuse them.
            yield json.dumps(_plain(columns), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise SettingError(f"row {number}: holds an infinite number, which JSON does not have.") from error


def _iterate_table_rows(data: Rows) -> Iterator[Any]:
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


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays become lists, NumPy scalars numbers, missing numbers null."""
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, pandas series
        return _plain(value.tolist())
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    return None if str(value) in ("<NA>", "NaT") else str(value)
