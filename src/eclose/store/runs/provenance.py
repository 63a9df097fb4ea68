"""Provenance of files: whether a result still belongs to the files it was made from, by the hashes of its manifest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.store.runs.folder import FOLDER_MANIFEST
from eclose.store.runs.manifest import Manifest, hash_file, read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ALLOW_STALE = "--allow-stale"


@dataclass(frozen=True, slots=True)
class ProvenanceCheck:
    """The result of a check against manifests."""

    checked: bool
    """False where no manifest names the result: labels from elsewhere, or a run put together by hand."""
    stale: tuple[str, ...] = ()
    """One sentence for each file that changed; empty where everything belongs together."""

    def refuse_stale(self, path: Path, remedy: str, *, allow_stale: bool) -> ProvenanceCheck:
        """Return the provenance; raise where something is stale and that is not allowed."""
        if self.stale and not allow_stale:
            raise UserError(
                f"{path}: {' '.join(self.stale)} {remedy}, put the old files back, or pass {ALLOW_STALE}"
                " (allow_stale=True in Python) to go on with a warning in every output."
            )
        return self


def find_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a file: the one beside it, or its folder's; None where neither names the file."""
    if (own := sibling_path(path, "manifest.json")).is_file():
        return read_manifest(own)
    if (shared := path.parent / FOLDER_MANIFEST).is_file():
        with suppress(UserError):  # a common name: the file may belong to another program
            manifest = read_manifest(shared)
            return manifest if path.name in manifest.outputs else None
    return None


def check_result(path: Path, sources: Sequence[Path] = ()) -> ProvenanceCheck:
    """Compare a result and the files beside it, from which it was made, with the hashes of its manifest."""
    manifest = find_manifest(path)
    if manifest is None:
        return ProvenanceCheck(checked=False)
    return ProvenanceCheck(checked=True, stale=tuple(_stale(path, sources, manifest)))


def check_verdicts(path: Path, *, allow_stale: bool = False) -> ProvenanceCheck:
    """Compare a file of verdicts with its manifest, and with those of its inputs that lie beside it or one folder up.

    Raises where one of them changed, unless ``allow_stale``.
    """
    manifest = find_manifest(path)
    candidates = [
        next((file for file in (path.parent / name, path.parent.parent / name) if file.is_file()), None)
        for name in (manifest.inputs if manifest is not None else ())
    ]
    provenance = check_result(path, [file for file in candidates if file is not None])
    return provenance.refuse_stale(path, "Write the verdicts again", allow_stale=allow_stale)


def _stale(path: Path, sources: Sequence[Path], manifest: Manifest) -> Iterator[str]:
    written, now = manifest.outputs.get(path.name), hash_file(path)
    if written != now:
        yield f"{path.name} was changed after it was written ({_short(written)} then, {_short(now)} now)."
    for source in sources:
        now = hash_file(source)
        if now not in _known(source, manifest):
            then = manifest.inputs.get(source.name) or manifest.outputs.get(source.name)
            listed = ", ".join(f"{name} {_short(known)}" for name, known in manifest.inputs.items())
            was = f"{_short(then)} then" if then else f"its inputs: {listed or 'none named'}"
            yield f"{source.name} is not the file that {path.name} was made from ({was}, {_short(now)} now)."


def _known(source: Path, manifest: Manifest) -> set[str]:
    """Return the hashes under which a source belongs to the result.

    These are the result's inputs, what was written in the same step (an export of annotations), and what another step
    made of the same inputs (questions, responses and judgments out of one log).
    """
    known = {*manifest.inputs.values()}
    if source.name in manifest.outputs:
        known.add(manifest.outputs[source.name])
    twin = find_manifest(source)
    if twin is not None and manifest.inputs and twin.inputs == manifest.inputs and source.name in twin.outputs:
        known.add(twin.outputs[source.name])
    return known


def _short(digest: str | None) -> str:
    """Return ``sha256:1a2b3c4d``, enough of a hash to tell two files apart in a message."""
    return "no hash" if digest is None else digest[:15]
