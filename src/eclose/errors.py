"""One small hierarchy of errors, each a sentence a user can act on.

::

    EcloseError            anything the package raises on purpose
    └── UserError            the caller can fix it; the command line prints it and exits with 2
        ├── RecordError      one record of a file is wrong: which file, which record, what to do
        ├── SettingError     a setting or a combination of settings is wrong
        └── Resumable        work stopped half way; the same command goes on, and this one exits with 75

A bug is none of these: it stays a traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class EcloseError(Exception):
    """Anything the package raises on purpose."""


class UserError(EcloseError):
    """Something the caller can fix; the message says what."""

    exit_code = 2
    """What the command line exits with."""


class Resumable(UserError):  # noqa: N818 - a way to stop, not a mistake
    """The run stops, and the same command takes it up again."""

    exit_code = 75


class SettingError(UserError):
    """A setting, or a combination of settings, that cannot work."""


class RecordError(UserError):
    """A record that cannot be read: where it is, what is wrong, what to do."""

    def __init__(self, problem: str, *, path: Path | str | None = None, record: str | None = None) -> None:
        self.problem = problem
        self.path = path
        self.record = record
        super().__init__(problem)

    def at(self, path: Path | str, record: str) -> RecordError:
        """The same error, told where it happened."""
        return RecordError(self.problem, path=path, record=record)

    def __str__(self) -> str:
        """File, record and problem, in the order a reader looks for them."""
        where = " ".join(str(part) for part in (self.path, self.record) if part)
        return f"{where}: {self.problem}" if where else self.problem
