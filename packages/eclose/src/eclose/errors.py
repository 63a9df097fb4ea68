"""The errors that the package raises on purpose; each message says what to do.

::

    EcloseError            every error that the package raises on purpose
    └── UserError            the caller can fix it; the command line prints it and exits with 2
        ├── RecordError      one record of a file is wrong: which file, which record, what to do
        ├── SettingError     a setting or a combination of settings is wrong
        └── Resumable        work stopped half way; the same command continues it, and this one exits with 75

Any other exception is a bug and shows a traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class EcloseError(Exception):
    """Base class of every error that the package raises on purpose.

    Examples:
        >>> issubclass(UserError, EcloseError)
        True
    """


class UserError(EcloseError):
    """An error that the caller can fix; the message says how.

    Examples:
        >>> UserError("run.jsonl: holds no response.").exit_code
        2
    """

    exit_code = 2
    """Exit code of the command line."""


class Resumable(UserError):  # noqa: N818 - a way to stop, not a mistake
    """A run that stopped and continues when the same command is repeated."""

    # EX_TEMPFAIL of sysexits.h: try again later.
    exit_code = 75


class SettingError(UserError):
    """A setting, or a combination of settings, that cannot work.

    Examples:
        >>> str(SettingError("--repeat must be odd."))
        '--repeat must be odd.'
    """


class RecordError(UserError):
    """A record that cannot be used: file, record, problem and remedy.

    Args:
        problem: The problem and what to do about it, as sentences.
        path: The file of the record, where known.
        record: The record within the file, such as ``line 3`` or ``response r1``.

    Examples:
        >>> print(RecordError("question: is missing.", path="data.jsonl", record="line 3"))
        data.jsonl line 3: question: is missing.
    """

    def __init__(self, problem: str, *, path: Path | str | None = None, record: str | None = None) -> None:
        self.problem = problem
        self.path = path
        self.record = record
        # Pickling, as between workers of a cluster, calls the class with these arguments and restores the other
        # attributes.
        super().__init__(problem)

    def at(self, path: Path | str, record: str) -> RecordError:
        """Return the same error with the file and the record where it occurred.

        Args:
            path: The file that was read.
            record: The record within the file.

        Returns:
            A new error with the same problem.
        """
        return RecordError(self.problem, path=path, record=record)

    def __str__(self) -> str:
        """Return file, record and problem in one line."""
        where = " ".join(str(part) for part in (self.path, self.record) if part)
        return f"{where}: {self.problem}" if where else self.problem
