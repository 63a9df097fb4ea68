"""Files that only their owner can read, whatever the umask is."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
