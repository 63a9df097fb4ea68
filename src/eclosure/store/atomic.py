"""Files that appear whole or not at all. Knows bytes, nothing of what they mean."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from eclosure.errors import UserError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class AtomicFile:
    """A file that appears under its name only when everything was written and reached the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UserError(f"{self.path}: is a folder. Name a file to write.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._raw = NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False)  # noqa: SIM115
        except OSError as error:
            raise self._failure(error) from error
        self._temporary = Path(self._raw.name)
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
        """Put the file in its place, or leave no trace of it."""
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
        os.chmod(self._temporary, 0o666 & ~_umask())
        self._temporary.replace(self.path)

    def _failure(self, error: OSError) -> UserError:
        return UserError(f"{self.path}: cannot be written here ({error.strerror}). Choose another place or make room.")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
