"""Files that only their owner can read."""

from __future__ import annotations

import os
from stat import S_IMODE

import pytest

from eclose.files.atomic import make_private_file, make_private_folder, owner_only


@pytest.fixture(autouse=True)
def permissive():
    previous = os.umask(0)
    yield
    assert os.umask(previous) == 0


def mode(path):
    return S_IMODE(path.stat().st_mode)


def test_new_files_and_folders(tmp_path):
    with owner_only():
        (tmp_path / "file").write_text("x")
        (tmp_path / "folder").mkdir()
    (tmp_path / "later").write_text("x")
    assert [mode(tmp_path / name) for name in ("file", "folder", "later")] == [0o600, 0o700, 0o666]


def test_the_umask_is_restored_after_an_error():
    with pytest.raises(RuntimeError), owner_only():
        raise RuntimeError


def test_an_existing_folder_keeps_the_rights_of_its_owner(tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "script").write_text("x")
    (folder / "script").chmod(0o755)
    (tmp_path / "outside").write_text("x")
    (folder / "link").symlink_to(tmp_path / "outside")
    make_private_folder(folder)
    assert [mode(path) for path in (folder, folder / "inner", folder / "script")] == [0o700, 0o700, 0o700]
    assert mode(tmp_path / "outside") == 0o666


def test_an_existing_file_keeps_its_content(tmp_path):
    make_private_file(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o600
    (tmp_path / "old").write_text("x")
    make_private_file(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "x"
