"""A file that appears whole, on disk, with the permissions of any new file."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile


def put(path, data=b"x"):
    with AtomicFile(path) as file:
        file.write(data)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_reaches_the_disk_after_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def noted(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("rename"), replace(*names)))
    put(tmp_path / "a.jsonl")
    assert events == ["file", "rename", "folder"]


def test_a_folder_that_cannot_be_brought_to_disk_is_no_error_where_the_file_system_has_no_such_thing(
    tmp_path, monkeypatch
):
    fsync = os.fsync

    def refuse(error):
        def folder(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(error, os.strerror(error))
            fsync(descriptor)

        return folder

    monkeypatch.setattr(os, "fsync", refuse(22))
    put(tmp_path / "a.jsonl")
    monkeypatch.setattr(os, "fsync", refuse(5))
    with pytest.raises(UserError, match="cannot be written here"):
        put(tmp_path / "b.jsonl")


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path, umask, expected):
    before = os.umask(umask)
    try:
        put(tmp_path / "a.jsonl")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a.jsonl") == expected


def test_the_umask_of_the_process_is_never_changed(tmp_path, monkeypatch):
    """Another thread that makes a file in that moment would make it for all to write."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    put(tmp_path / "a.jsonl")


def test_many_threads_write_one_file_and_one_of_them_is_there_whole(tmp_path):
    path = tmp_path / ("n" * 200 + ".jsonl")
    threads = [threading.Thread(target=put, args=(path, bytes([65 + n]) * 100_000)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = path.read_bytes()
    assert len(content) == 100_000
    assert len(set(content)) == 1
    assert list(tmp_path.iterdir()) == [path]
