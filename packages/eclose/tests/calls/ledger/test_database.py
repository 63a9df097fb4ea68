"""A file has one writer on every system, and a server that hangs is given up."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import text

from eclose.calls.ledger import database
from eclose.calls.ledger.database import WriterLock, detect_network_file_system, make_database_engine
from eclose.errors import UserError
from tests.calls.ledger.postgres import fresh_database


class FakeWindows(ModuleType):
    """Locks of Windows, as far as they are used: one byte of a file, by one descriptor of a path."""

    LK_NBLCK = 2

    def __init__(self):
        super().__init__("msvcrt")
        self.held = {}

    def locking(self, file, mode, count):
        assert (mode, count) == (self.LK_NBLCK, 1)
        # A locked byte cannot be read there, so it lies behind what is written.
        assert os.lseek(file, 0, os.SEEK_CUR) > 2**20
        path = os.readlink(f"/proc/self/fd/{file}")
        if path in self.held:
            raise PermissionError(13, "Permission denied")
        self.held[path] = file


@pytest.fixture
def no_flock(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.usefixtures("no_flock")
def test_the_module_is_imported_and_locks_on_a_system_without_flock(tmp_path, monkeypatch):
    windows = FakeWindows()
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    importlib.reload(database)
    first = database.WriterLock(tmp_path / "ledger.db", "first")
    with pytest.raises(UserError, match=rf"process {os.getpid()} on .* \(first, since .*\) is writing to it"):
        database.WriterLock(tmp_path / "ledger.db", "second")
    first.release()
    assert list(windows.held) == [str(tmp_path / "ledger.db.lock")]


@pytest.mark.usefixtures("no_flock")
def test_a_system_without_any_locks_is_refused_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with pytest.raises(UserError, match=r"has no file locks\. Keep the ledger in PostgreSQL"):
        WriterLock(tmp_path / "ledger.db", "x")


@pytest.mark.database
def test_a_statement_and_a_silent_connection_are_given_up():
    url = fresh_database()
    engine = make_database_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "2min"
        driver = connection.connection.driver_connection
        parameters = driver.info.get_parameters()
    engine.dispose()
    assert (parameters["keepalives"], parameters["tcp_user_timeout"]) == ("1", "60000")
    own = make_database_engine(f"{url}&tcp_user_timeout=5000")
    with own.connect() as connection:
        assert connection.connection.driver_connection.info.get_parameters()["tcp_user_timeout"] == "5000"
    own.dispose()


def test_the_nearest_mount_decides(tmp_path):
    shared, local = tmp_path / "a folder", tmp_path / "a folder" / "local"
    local.mkdir(parents=True)
    (tmp_path / "link").symlink_to(shared)
    escaped = str(shared).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {escaped} nfs4 rw 0 0\n/dev/sdb {escaped}/local xfs rw 0 0\n")
    assert detect_network_file_system(shared / "run" / "ledger.sqlite", mounts) == "nfs4"
    assert detect_network_file_system(tmp_path / "link" / "ledger.sqlite", mounts) == "nfs4"
    assert detect_network_file_system(local / "ledger.sqlite", mounts) is None
    assert detect_network_file_system(tmp_path / "ledger.sqlite", mounts) is None
    assert detect_network_file_system(shared, tmp_path / "no list") is None
    assert detect_network_file_system(Path("/proc")) is None
