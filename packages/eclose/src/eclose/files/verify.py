"""Provenance of results: comparison of a result and its inputs with the hashes of its manifest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.files.manifest import Manifest, hash_file, read_manifest
from eclose.files.run_folder import FOLDER_MANIFEST
from eclose.files.step import companion_file_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ALLOW_STALE = "--allow-stale"


@dataclass(frozen=True, slots=True)
class ProvenanceCheck:
    """The result of comparing files with their manifests."""

    checked: bool
    """False where no manifest lists the result, as with imported labels or a folder assembled by hand."""
    stale: tuple[str, ...] = ()
    """One sentence for each file that changed; empty where all files belong together."""

    def refuse_stale(self, path: Path, remedy: str, *, allow_stale: bool) -> ProvenanceCheck:
        """Return the check itself; raise where a file is stale, unless ``allow_stale``."""
        if self.stale and not allow_stale:
            raise UserError(
                f"{path}: {' '.join(self.stale)} {remedy}, put the old files back, or pass {ALLOW_STALE}"
                " (allow_stale=True in Python) to go on with a warning in every output."
            )
        return self


def find_file_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a file: the one beside it, or its folder's; None where neither lists the file."""
    if (file_manifest := companion_file_path(path, "manifest.json")).is_file():
        return read_manifest(file_manifest)
    if (folder_manifest := path.parent / FOLDER_MANIFEST).is_file():
        # manifest.json is a common name: the file may belong to another program.
        with suppress(UserError):
            manifest = read_manifest(folder_manifest)
            return manifest if path.name in manifest.outputs else None
    return None


def check_result_provenance(path: Path, sources: Sequence[Path] = ()) -> ProvenanceCheck:
    """Compare a result and the files it was made from with the hashes of its manifest."""
    manifest = find_file_manifest(path)
    if manifest is None:
        return ProvenanceCheck(checked=False)
    return ProvenanceCheck(checked=True, stale=tuple(_describe_changes(path, sources, manifest)))


def check_verdicts_provenance(path: Path, *, allow_stale: bool = False) -> ProvenanceCheck:
    """Compare a file of verdicts, and its inputs in the same folder or the one above, with the manifest.

    Raises where a file changed, unless ``allow_stale``.
    """
    manifest = find_file_manifest(path)
    candidates = [
        next((file for file in (path.parent / name, path.parent.parent / name) if file.is_file()), None)
        for name in (manifest.inputs if manifest is not None else ())
    ]
    provenance = check_result_provenance(path, [file for file in candidates if file is not None])
    return provenance.refuse_stale(path, "Write the verdicts again", allow_stale=allow_stale)


def _describe_changes(path: Path, sources: Sequence[Path], manifest: Manifest) -> Iterator[str]:
    then, now = manifest.outputs.get(path.name), hash_file(path)
    if then != now:
        yield f"{path.name} was changed after it was written ({_short(then)} then, {_short(now)} now)."
    for source in sources:
        now = hash_file(source)
        if now not in _accepted_hashes(source, manifest):
            then = manifest.inputs.get(source.name) or manifest.outputs.get(source.name)
            listed = ", ".join(f"{name} {_short(digest)}" for name, digest in manifest.inputs.items())
            was = f"{_short(then)} then" if then else f"its inputs: {listed or 'none named'}"
            yield f"{source.name} is not the file that {path.name} was made from ({was}, {_short(now)} now)."


def _accepted_hashes(source: Path, manifest: Manifest) -> set[str]:
    """Return the hashes with which a source belongs to the result.

    These are the result's inputs, the outputs of the same step (an export of annotations), and the outputs of another
    step on the same inputs (questions, responses and judgments from one log).
    """
    accepted = {*manifest.inputs.values()}
    if source.name in manifest.outputs:
        accepted.add(manifest.outputs[source.name])
    other = find_file_manifest(source)
    if other is not None and manifest.inputs and other.inputs == manifest.inputs and source.name in other.outputs:
        accepted.add(other.outputs[source.name])
    return accepted


def _short(digest: str | None) -> str:
    """Return ``sha256:1a2b3c4d``, enough of a hash to tell two files apart in a message."""
    return "no hash" if digest is None else digest[:15]
