"""Network file systems, by the list of mounts that the system keeps."""

from __future__ import annotations

from pathlib import Path

from eclose.store.ledger.network_mounts import detect_network_file_system


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
