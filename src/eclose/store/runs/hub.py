"""Datasets on a Hugging Face hub: fetched and pushed only where a caller asks for it by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from eclose.errors import UserError

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
