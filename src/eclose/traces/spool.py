"""Spans of a file grouped by trace on disk, so that memory does not grow with the file."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

_BATCH = 500
_CACHE_KIB = 16_384


class SpanSpool:
    """Texts under a trace id, returned trace by trace in the order in which the traces began. A context manager.

    They are in an unnamed database file, which the system removes with the process. SQLite sorts it on disk.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA temp_store = FILE",
            "CREATE TABLE traces (id INTEGER PRIMARY KEY, trace TEXT UNIQUE)",
            "CREATE TABLE spans (trace INTEGER, position INTEGER, body TEXT)",
            "BEGIN",
        ):
            self._database.execute(statement)
        self._waiting: list[tuple[str, int, str]] = []

    def add(self, trace: str, position: int, body: str) -> None:
        """Add a text to a trace; ``position`` is the number of its record in the file."""
        # JSON may hold half of a surrogate pair, which SQLite cannot store.
        self._waiting.append((trace.encode("utf-8", "backslashreplace").decode(), position, body))
        if len(self._waiting) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany(
            "INSERT OR IGNORE INTO traces (trace) VALUES (?)", ((t,) for t, _, _ in self._waiting)
        )
        self._database.executemany("INSERT INTO spans SELECT id, ?2, ?3 FROM traces WHERE trace = ?1", self._waiting)
        self._waiting.clear()

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        """Yield the number of the trace, the position and the text, trace by trace."""
        self._flush()
        yield from self._database.execute("SELECT trace, position, body FROM spans ORDER BY trace, rowid")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and thereby remove, the database."""
        self._database.close()
