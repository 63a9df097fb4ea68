"""Families as users have them, opened for reading: files, folders, tables, values, and addresses on a dataset hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.families import FamilySource
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import encode_json_line, unwrap_records
from eclose.files.manifest import Manifest, hash_file, hash_files, read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import DEVELOPMENT, FAMILIES_FILE, TRAIN
from eclose.files.step import companion_file_path
from eclose.values.family import Family

FamilyInput: TypeAlias = Path | str | Iterable[Family | Mapping[str, Any]] | Mapping[str, Any]
"""A file of families (JSON Lines or Parquet), a folder, an address on a hub, families, rows of a table such as
``datasets.Dataset``, or such tables by split."""

_STAGE = "families read"


class FamilySplit(StrEnum):
    """Splits of a dataset, by the names that dataset hubs give them."""

    TRAIN = "train"
    HELD_OUT = "validation"


SPLIT_FILES: Mapping[FamilySplit, str] = {FamilySplit.TRAIN: TRAIN, FamilySplit.HELD_OUT: DEVELOPMENT}
"""Files of a run of ``eclose construct`` by split."""


def open_families(families: FamilyInput, split: FamilySplit | None = None, *, hub: bool = False) -> FamilySource:
    """Return the source of families.

    Args:
        families: A file, a folder, an address such as ``hf://datasets/owner/name@revision``, families, or rows of a
            table.
        split: Which files of a folder are read; all of them by default.
        hub: Whether an address on a hub may be fetched.

    Raises:
        UserError: There are no families of this split, or they cannot be fetched.
        SettingError: The address is on a hub, and ``hub`` is false.
    """
    if isinstance(families, FamilySource):
        return families
    if isinstance(families, Mapping):
        return _open_rows(_choose_split(families, split))
    if not isinstance(families, Path | str):
        return _open_rows(families)
    if (address := HubAddress.parse(str(families))) is not None:
        if not hub:
            raise SettingError(f"{address}: is on a hub. Pass --hub (hub=True) to fetch it, or name a local file.")
        path, name = fetch_dataset(address)
        return FamilySource(name, find_family_files(path, split))
    return FamilySource(str(families), find_family_files(Path(families), split))


def _open_rows(rows: Iterable[Family | Mapping[str, Any]]) -> FamilySource:
    kind = type(rows)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    # A generator could be read once only, and a switch test reads once for each model.
    return FamilySource(name, rows=rows if hasattr(rows, "__len__") else list(rows))


def _choose_split(splits: Mapping[str, Any], split: FamilySplit | None) -> Iterable[Family | Mapping[str, Any]]:
    """Return a split of several, such as ``datasets.load_dataset`` returns."""
    if split is None:
        return [row for rows in splits.values() for row in rows]
    if split.value not in splits:
        raise UserError(f"the dataset has no split {split.value}, only {', '.join(splits)}. Pass one split of it.")
    rows: Iterable[Family | Mapping[str, Any]] = splits[split.value]
    return rows


def find_family_files(path: Path, split: FamilySplit | None = None) -> tuple[Path, ...]:
    """Return a file, or the files of a folder: those of a run, of an exported dataset, or Parquet tables side by side.

    Raises:
        UserError: There is no such file, or the folder holds no families of this split.
    """
    if not path.is_dir():
        require_regular_file(path)
        return (path,)
    lines = path / (FAMILIES_FILE if split is None else SPLIT_FILES[split])
    if lines.is_file():
        return (lines,)
    tables = sorted({*path.glob("*.parquet"), *path.glob("data/*.parquet")})
    # Shards are named by their split: train-00000.parquet. A folder without such names has one split.
    named = {name: [table for table in tables if table.name.split("-")[0] == name] for name in FamilySplit}
    chosen = tables if split is None or not any(named.values()) else named[split]
    if not chosen:
        holds = f"only {', '.join(table.name for table in tables[:5])}" if tables else f"no {lines.name} and no Parquet"
        wanted = "families" if split is None else f"families of the split {split.value}"
        raise UserError(f"{path}: has no {wanted} ({holds}). Name a file of families.")
    return tuple(chosen)


def write_family_lines(source: FamilySource, path: Path) -> Path:
    """Return the families as a file of JSON Lines: the source's own, or ``path``, written from it in constant memory.

    Lines are those of ``encode_json_line``, which every command of this package writes. So the file, and with it the
    hash by which a run is identified, is the same whether the families came as lines, tables or values. A manifest
    beside it names the origin. A file that was written from the same tables is not written again.

    Raises:
        UserError: A record cannot be read, or ``path`` holds other families.
    """
    if source.json_file is not None:
        return source.json_file
    manifest_path = companion_file_path(path, "manifest.json")
    inputs = hash_files(source.files)
    if inputs and path.is_file() and manifest_path.is_file():
        manifest = read_manifest(manifest_path)
        if manifest.inputs == inputs and manifest.outputs.get(path.name) == hash_file(path):
            return path
    count, digest = 0, hashlib.sha256()
    # Several processes of one run may write at the same time: each writes the same bytes and renames them into place.
    with AtomicFile(path) as file:
        for family in unwrap_records(source.scan()):
            line = encode_json_line(family) + b"\n"
            file.write(line)
            digest.update(line)
            count += 1
        written = f"sha256:{digest.hexdigest()}"
        if path.is_file() and hash_file(path) != written:
            raise UserError(
                f"{path}: holds other families than {source.name}. Write to another folder, or remove this one."
            )
    Manifest(_STAGE, {"source": source.name}, inputs, {path.name: written}, RecordCounts(count, count)).write(
        manifest_path
    )
    return path


# Datasets on a Hugging Face hub: fetched and pushed only where a caller asks for it by name.


# A Path collapses the two slashes, so one is taken as well.
_ADDRESS = re.compile(r"hf:/{1,2}datasets/(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?/?")
_FETCHED = ("*.parquet", "*.jsonl")


@dataclass(frozen=True)
class HubAddress:
    """A dataset on a hub, at a revision, or a file or folder in it."""

    name: str
    """Owner and name: ``owner/name``."""
    revision: str | None = None
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress | None:
        """Return the address that a text of the form ``hf://datasets/owner/name@revision/path`` names, or None."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            return None
        revision = match["revision"]
        return cls(match["name"], unquote(revision) if revision else None, match["path"])

    def __str__(self) -> str:
        revision = f"@{quote(self.revision, safe='')}" if self.revision else ""
        return f"hf://datasets/{self.name}{revision}" + (f"/{self.path}" if self.path else "")


def fetch_dataset(address: HubAddress) -> tuple[Path, str]:
    """Fetch the families of a dataset into the cache of the hub's client.

    Returns:
        The local folder or file, and the address with the commit that was fetched.

    Raises:
        UserError: The client is not installed, or the dataset cannot be fetched.
    """
    hub = _import_client()
    patterns = list(_FETCHED) if address.path is None else [address.path, f"{address.path}/*"]
    try:
        folder = Path(
            hub.snapshot_download(
                repo_id=address.name, repo_type="dataset", revision=address.revision, allow_patterns=patterns
            )
        )
    except _client_errors(hub) as error:
        raise UserError(f"{address}: cannot be fetched ({_first_line(error)}).") from error
    # The client names the folder by the commit, so the families are pinned even where a branch was asked for.
    pinned = HubAddress(address.name, folder.name, address.path)
    return folder if address.path is None else folder / address.path, str(pinned)


def push_dataset(folder: Path, name: str, *, private: bool = True) -> str:
    """Upload the folder of an export to a dataset on a hub; the dataset is created where there is none.

    Args:
        folder: Folder that ``eclose families export --format datasets`` wrote.
        name: Owner and name: ``owner/name``.
        private: Whether a dataset that is created is private.

    Returns:
        The address of the dataset at the commit of the upload.

    Raises:
        UserError: The client is not installed, or the hub refuses the upload.
    """
    hub = _import_client()
    try:
        client = hub.HfApi()
        client.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
        # Shards of an older, longer table would be read as part of this one.
        commit = client.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            allow_patterns=["README.md", "manifest.json", "data/*.parquet"],
            delete_patterns="data/*.parquet",
            commit_message="Upload families",
        )
    except _client_errors(hub) as error:
        raise UserError(f"{name}: cannot be uploaded ({_first_line(error)}).") from error
    return str(HubAddress(name, commit.oid))


def _import_client() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise UserError("a hub needs huggingface_hub. Run: pip install huggingface_hub") from missing
    return huggingface_hub


def _client_errors(hub: Any) -> tuple[type[Exception], ...]:
    """Return what the client raises for addresses that do not exist, refused access, and a network that fails."""
    names = ("HTTPError", "RevisionResolutionError", "EntryNotFoundError")
    return (OSError, ValueError, *(getattr(hub.errors, name) for name in names if hasattr(hub.errors, name)))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
