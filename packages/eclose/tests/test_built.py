"""A shared folder is built once, and anew where building it failed."""

from __future__ import annotations

import pytest

from tests.built import build_once


def test_folder_is_built_by_the_first_that_asks_for_it(tmp_path_factory):
    def build(folder):
        (folder / "file").write_text("built")

    folder = build_once(tmp_path_factory, "first", build)
    (folder / "file").write_text("changed")
    assert build_once(tmp_path_factory, "first", build) == folder
    assert (folder / "file").read_text() == "changed"


def test_folder_is_built_anew_when_building_it_failed(tmp_path_factory):
    def fail(folder):
        (folder / "half").touch()
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        build_once(tmp_path_factory, "second", fail)
    folder = build_once(tmp_path_factory, "second", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
