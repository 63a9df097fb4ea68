"""Atomic writing of files: a file appears under its name complete and on disk, or not at all."""

from __future__ import annotations

import errno
import gzip
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self


# File systems allow 255 bytes: 40 characters of at most 4 bytes, two dots and 16 hexadecimal digits fit in any script.
_NAME_BYTES = 40
"""Characters of a file's name in that of its temporary file: the longest permitted name leaves no room for a suffix."""


class AtomicFile:
    """A file that appears under its name once everything is written and on disk; packed where the name ends in .gz."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UserError(f"{self.path}: is a folder. Name a file to write.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # In the same folder, since a rename is atomic only within one file system.
            self._temporary = self.path.with_name(f".{self.path.name[:_NAME_BYTES]}.{token_hex(8)}")
            # open() rather than tempfile: the file gets the permissions of any new file, after the umask.
            self._raw = self._temporary.open("xb")
        except OSError as error:
            raise self._failure(error) from error
        # Without name and time in the gzip header, equal content gives equal bytes.
        packed = self.path.suffix == ".gz"
        self._out: Any = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0) if packed else self._raw

    def write(self, data: bytes) -> None:
        """Append bytes."""
        try:
            self._out.write(data)
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename the temporary file to its final name, or remove it after an error."""
        try:
            if kind is None:
                self._put_in_place()
        except OSError as full:
            raise self._failure(full) from full
        finally:
            # On a full disk closing fails while it flushes; the temporary file must be removed all the same.
            for file in (self._out, self._raw):
                with suppress(OSError, ValueError):
                    file.close()
            self._temporary.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        if self._out is not self._raw:
            self._out.close()
        self._raw.flush()
        # The content reaches the disk before the rename: a power cut in between leaves no empty file under the name.
        os.fsync(self._raw.fileno())
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)

    def _failure(self, error: OSError) -> UserError:
        return UserError(f"{self.path}: cannot be written here ({error.strerror}). Choose another place or make room.")


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a power cut cannot undo a rename.

    Does nothing on Windows and on file systems that cannot flush a folder.
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


def write_json(path: Path | str, value: Any, *, allow_nan: bool = True) -> None:
    """Write a JSON value atomically, indented for people."""
    with AtomicFile(path) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=allow_nan).encode() + b"\n")


def write_files(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """Write files into a folder, each complete or not at all; return their paths by name."""
    paths = {name: folder / name for name in contents}
    for name, content in contents.items():
        with AtomicFile(paths[name]) as file:
            file.write(content)
    return paths


# Files that only their owner can read, whatever the umask is.


PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


@contextmanager
def owner_only() -> Iterator[None]:
    """Create all files of the process with mode 0600 and folders with 0700, until the block ends."""
    # The umask belongs to the process: other threads are restricted for that time, too, which does no harm.
    previous = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(previous)


def make_private_folder(folder: Path) -> None:
    """Create a folder with mode 0700, or take the access of others away from an existing one and its entries."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    for path in (folder, *folder.iterdir()):
        # A file of another user keeps its mode, and one that vanished needs none.
        with suppress(OSError):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)


def make_private_file(path: Path) -> bool:
    """Create an empty file with mode 0600 where there is none; return whether it was created."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    except FileExistsError:
        return False
    return True
