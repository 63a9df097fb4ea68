"""Atomic files: a file appears under its name whole, or not at all. Knows bytes, not what they mean."""

from __future__ import annotations

import errno
import gzip
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


_NAME_BYTES = 40
"""How much of a file's name is in that of its temporary file, so that a name of the longest length has one, too."""


class AtomicFile:
    """A file that appears under its name only when everything was written and reached the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UserError(f"{self.path}: is a folder. Name a file to write.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._temporary = self.path.with_name(f".{self.path.name[:_NAME_BYTES]}.{token_hex(8)}")
            self._raw = self._temporary.open("xb")  # with the permissions of any new file: the system applies the umask
        except OSError as error:
            raise self._failure(error) from error
        # Without name and time in its header, equal content gives equal bytes.
        packed = self.path.suffix == ".gz"
        self._out: Any = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0) if packed else self._raw

    def write(self, data: bytes) -> None:
        """Append bytes."""
        try:
            self._out.write(data)
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        """The file, open for writing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename the file to its own name, or remove it."""
        try:
            if kind is None:
                self._put_in_place()
        except OSError as full:
            raise self._failure(full) from full
        finally:
            # What is left in buffers is of no use now, and a full disk must not keep the file from going.
            for file in (self._out, self._raw):
                with suppress(OSError, ValueError):
                    file.close()
            self._temporary.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        if self._out is not self._raw:
            self._out.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)

    def _failure(self, error: OSError) -> UserError:
        return UserError(f"{self.path}: cannot be written here ({error.strerror}). Choose another place or make room.")


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: without this, a rename may be undone by a power cut.

    Does nothing where the system or the file system has no such thing.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
