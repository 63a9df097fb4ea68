"""Tells network file systems from local ones, where the system lists its mounts."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset({"9p", "afs", "ceph", "cifs", "davfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs", "fuse.sshfs"})


def detect_network_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of network file system a path lies on; None for a local one, and where no mounts are listed."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    kinds = {_unescape(mount): kind for _, mount, kind, *_ in map(str.split, lines)}
    path = path.resolve()
    nearest = next((kinds[str(folder)] for folder in (path, *path.parents) if str(folder) in kinds), None)
    return nearest if nearest in _NETWORK else None


def _unescape(mount: str) -> str:
    """Return a path of the list as it is: blanks and backslashes stand there in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount = mount.replace(code, character)
    return mount
