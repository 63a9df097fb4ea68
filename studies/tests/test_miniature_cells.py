"""Tests of the archive of finished cells of the miniature study."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from eclose.errors import UserError
from studies.campaigns.miniature_study.cells import take_cells

if TYPE_CHECKING:
    from pathlib import Path

BACKBONES = {"small": "sha256:1", "smaller": "sha256:2"}


def write_archive(path: Path, cells: int = 30) -> Path:
    members = {"backbones.json": json.dumps(BACKBONES)}
    for seed in range(cells):
        members[f"small/sft/{seed}/responses.jsonl"] = "{}\n" * 1000
        members[f"small/sft/{seed}/switches.jsonl"] = "{}\n"
    with tarfile.open(path, "w:gz") as file:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            file.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.slow
def test_several_sittings_take_the_cells_of_one_archive_at_the_same_time(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "cells.tar.gz")
    with ThreadPoolExecutor(8) as pool:
        sittings = list(pool.map(lambda _: take_cells(archive, tmp_path / "cells", BACKBONES), range(40)))
    assert sittings == [sittings[0]] * 40
    assert sorted(run.seed or 0 for run in sittings[0]) == list(range(30))
    assert {run.responses.stat().st_size for run in sittings[0]} == {3000}


def test_cells_of_other_weights_are_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "cells.tar.gz", cells=1)
    with pytest.raises(UserError, match="other weights of smaller"):
        take_cells(archive, tmp_path / "cells", BACKBONES | {"smaller": "sha256:3"})


def test_a_member_outside_the_folder_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "cells.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
    with pytest.raises(tarfile.FilterError):
        take_cells(archive, tmp_path / "cells", BACKBONES)
    assert not (tmp_path / "outside").exists()
