"""A judged run as Parquet parts, in a folder or in object storage (``s3://``, ``gs://``, ``abfss://``).

``run.json`` lists the parts and is written last, so a folder without it is not a run. Ids and labels are in
``labels/``, texts in ``bodies/``: counting reads the labels alone. Needs pyarrow, an extra.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.files.jsonl import parse_dataclass
from eclose.files.parquet import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARTS_SCHEMA = "eclose.run-parts/2"
"""Version of the layout and of the columns; a reader refuses any other."""
PARTS_FILE = "run.json"
LABELS_FOLDER, BODIES_FOLDER = "labels", "bodies"

_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
_REMOTE = re.compile(rf"({'|'.join(_SCHEMES)}):/+(.+)")
_ROW_GROUP = 2_000
"""Rows read at once; a sampled response costs one row group of texts."""


@dataclass(frozen=True, slots=True)
class PartsManifest:
    """The contents of ``run.json``: the parts, and the caveats that were found when the run was split."""

    schema: str
    parts: tuple[tuple[str, int], ...]
    """Name of each part and its number of responses, in the order of the run."""
    left_out: tuple[tuple[str, str], ...] = ()
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    checked: bool = True
    selected: tuple[str, ...] = ()


def get_remote_url(run: Path | str) -> str | None:
    """Return the address of a run in object storage; None for a folder.

    A ``Path`` of an address has lost one of its slashes, which is put back.
    """
    # "s3://bucket/run" as a Path is "s3:/bucket/run".
    match = _REMOTE.fullmatch(str(run))
    return None if match is None else f"{match[1]}://{match[2].rstrip('/')}"


def is_in_parts(run: Path | str) -> bool:
    """Return whether a run is in Parquet parts: an address in object storage, or a folder with ``run.json``."""
    return get_remote_url(run) is not None or (Path(run) / PARTS_FILE).is_file()


class PartsFolder:
    """The folder of a run in parts, on a disk or in object storage."""

    def __init__(self, run: Path | str) -> None:
        self._arrow, self._parquet = import_pyarrow("reading a run in parts")
        self.name = get_remote_url(run) or str(run)
        self._files, self._root = open_filesystem(run)

    def read_manifest(self) -> PartsManifest:
        """Return the list of parts; raise UserError where there is none, or one of another version."""
        try:
            with self._files.open_input_stream(f"{self._root}/{PARTS_FILE}") as file:
                content = json.loads(file.read())
        except OSError as error:
            raise UserError(f"{self.name}: holds no run in parts, {PARTS_FILE} cannot be read ({error}).") from error
        if content.get("schema") != PARTS_SCHEMA:
            raise UserError(
                f"{self.name}: is in the format {content.get('schema')}, and this version reads {PARTS_SCHEMA}."
                " Split the run again."
            )
        return parse_dataclass(PartsManifest, content)

    def exists(self) -> bool:
        """Return whether the folder holds a run in parts already."""
        (info,) = self._files.get_file_info([f"{self._root}/{PARTS_FILE}"])
        return bool(info.is_file)

    def write_manifest(self, manifest: PartsManifest) -> None:
        """Write the list of parts, after all of them."""
        with self._open_output(PARTS_FILE) as file:
            file.write(json.dumps(asdict(manifest), indent=1).encode())

    def write_part(self, folder: str, name: str, rows: Sequence[dict[str, Any]], schema: Any) -> None:
        """Write one Parquet file."""
        table = self._arrow.Table.from_pylist(rows, schema)
        with self._open_output(f"{folder}/{name}.parquet") as file:
            self._parquet.write_table(table, file, compression="zstd", row_group_size=_ROW_GROUP)

    def read_rows(self, folder: str, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a part, one batch in memory at a time."""
        with self._files.open_input_file(f"{self._root}/{folder}/{name}.parquet") as file:
            for batch in self._parquet.ParquetFile(file).iter_batches(batch_size=_ROW_GROUP):
                yield from batch.to_pylist()

    def read_rows_at(self, folder: str, name: str, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at some positions of a part; only their row groups are read."""
        by_group: dict[int, list[int]] = {}
        # All groups but the last have the same size, so the position tells the group.
        for position in positions:
            by_group.setdefault(position // _ROW_GROUP, []).append(position % _ROW_GROUP)
        rows = []
        with self._files.open_input_file(f"{self._root}/{folder}/{name}.parquet") as file:
            parquet = self._parquet.ParquetFile(file)
            for group, rows_of_group in sorted(by_group.items()):
                rows += parquet.read_row_group(group).take(sorted(rows_of_group)).to_pylist()
        # Arrow keeps what it has freed; texts of several row groups would stay in memory.
        self._arrow.default_memory_pool().release_unused()
        return rows

    def _open_output(self, name: str) -> Any:
        # Object storage has no folders; there this creates nothing.
        self._files.create_dir(f"{self._root}/{name}".rpartition("/")[0], recursive=True)
        return self._files.open_output_stream(f"{self._root}/{name}")


def open_filesystem(run: Path | str) -> tuple[Any, str]:
    """Return pyarrow's file system of a run, and the path in it."""
    from pyarrow import fs  # noqa: PLC0415 - an extra

    url = get_remote_url(run)
    if url is None:
        return fs.LocalFileSystem(), str(Path(run).absolute())
    scheme, _, path = url.partition("://")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if scheme == "s3" and endpoint:
        # Storage with the interface of S3 elsewhere: its host is in the variables that the AWS tools read.
        protocol, _, host = endpoint.rpartition("://")
        return fs.S3FileSystem(endpoint_override=host, scheme=protocol or "https"), path
    try:
        files, root = fs.FileSystem.from_uri(url)
    except (OSError, ValueError) as error:
        raise UserError(f"{url}: cannot be opened ({error}).") from error
    return files, root
