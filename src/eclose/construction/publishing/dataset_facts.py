"""What can be told of families: counted in their files, or read from the manifest of whoever made them.

No number is typed by hand, so what is told can be told again at any time. What was not recorded stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eclose.construction.audit.file_names import REPORT
from eclose.construction.audit.sample import hash_corpus
from eclose.construction.publishing.licences import Licence, find_licence
from eclose.construction.split import STAGE, dataset_name
from eclose.store.records.json_reader import parse_object, read_objects
from eclose.store.runs.folder import DEVELOPMENT, FAMILIES, TRAIN
from eclose.store.runs.manifest import Manifest, read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Iterator

Maker: TypeAlias = Literal["models", "world"]
ByDataset: TypeAlias = Mapping[str, Mapping[str, int]]

SPLITS: Mapping[str, str] = {"train": TRAIN, "validation": DEVELOPMENT}
"""What a hub calls the parts, and the files they lie in."""
_TOLD_APART = ("constructor", "verifier", "reverifier", "guidelines", "max_length", "tokenizer")
"""Settings that the card tells in its own words."""
_MAKERS: Mapping[str, Maker] = {"construct": "models", "world families": "world"}
"""By the stage of a manifest."""


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """That people looked at a sample of these families."""

    report: str
    """Where they say what they found."""
    families: int
    """How many were drawn."""
    open: int
    """How many of them are not settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card tells. None and empty mean that it is not recorded."""

    counts: ByDataset
    """Families by dataset and split."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Where the families of each split lie, by the names that a hub gives splits."""
    maker: Maker | None = None
    funnel: ByDataset = field(default_factory=dict)
    """Sources left after each part, by dataset; the columns in their order."""
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Sources refused, by part and reason."""
    constructor: str | None = None
    verifier: str | None = None
    reverifier: str | None = None
    attempts: int | None = None
    """How often a part was tried at most."""
    guidelines: Mapping[str, str] = field(default_factory=dict)
    """What each role was told, by hash."""
    token_limit: int | None = None
    tokenizer: str | None = None
    """Whose tokens were counted; None for an estimate."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All others."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Files the families were made from, by hash."""
    licences: Mapping[str, Licence] = field(default_factory=dict)
    """By dataset."""
    version: str | None = None
    """Of eclose."""
    audit: AuditSummary | None = None


def read_run_facts(folder: Path | str) -> CardFacts:
    """What the files of a run's folder tell."""
    folder = Path(folder)
    found = {split: folder / name for split, name in SPLITS.items() if (folder / name).is_file()}
    counts = {split: count_datasets(path) for split, path in found.items()}
    files = {split: found[split].name for split, datasets in counts.items() if datasets}
    return collect_facts(find_origin_manifest(folder / FAMILIES), counts, files, folder)


def collect_facts(
    manifest: Manifest | None, counts: Mapping[str, Mapping[str, int]], files: Mapping[str, str], folder: Path
) -> CardFacts:
    """What a manifest tells, with families counted by split and dataset. ``folder`` is where an audit would lie."""
    datasets = sorted({dataset for found in counts.values() for dataset in found})
    by_dataset = {name: {split: found.get(name, 0) for split, found in counts.items()} for name in datasets}
    audit = _audit(folder)
    licences = {dataset: find_licence(dataset) for dataset in datasets}
    told = {} if manifest is None else _told(manifest)
    return CardFacts(counts=by_dataset, files=files, licences=licences, audit=audit, **told)


def find_origin_manifest(families: Path) -> Manifest | None:
    """The manifest of whoever made a file of families, or of the families it is a part of; None where there is none."""
    path = sibling_path(families, "manifest.json")
    if not path.is_file():
        return None
    manifest = read_manifest(path)
    if not manifest.stage.startswith(STAGE):
        return manifest
    whole = find_origin_manifest(families.with_name(FAMILIES))
    # A part of families that were made anew since tells nothing of how these were made.
    same = whole is not None and whole.outputs.get(FAMILIES) == manifest.inputs.get(FAMILIES)
    return whole if same else None


def count_datasets(path: Path) -> Counter[str]:
    """How many families each dataset has in a file of JSON Lines."""
    return Counter(dataset_name(source.get("benchmark")) for source in _sources(path))


def _sources(path: Path) -> Iterator[Mapping[str, Any]]:
    for raw in read_objects(path):
        if raw.error is not None:
            raise raw.error
        yield (raw.value or {}).get("source") or {}


def find_audit_reports(folder: Path) -> list[Path]:
    """Where people's report on a run's families may lie: in the run's folder, or in ``audit`` within it."""
    return [path for path in (folder / REPORT, folder / "audit" / REPORT) if path.is_file()]


def _audit(folder: Path) -> AuditSummary | None:
    """The report of an audit that lies there, if it is about the families that do."""
    for path in find_audit_reports(folder):
        told = parse_object(path.read_bytes())
        if told.get("corpus") == hash_corpus(folder):
            return AuditSummary(str(path.relative_to(folder)), sum(told["audited"].values()), len(told["open"]))
    return None


def _told(manifest: Manifest) -> dict[str, Any]:
    settings, calls = manifest.settings, manifest.calls
    stages = manifest.funnel or {manifest.stage: manifest.counts}
    refused = calls.get("rejected") or {
        part: {**counts.rejected, **counts.quarantined} for part, counts in stages.items()
    }
    return {
        "maker": _MAKERS.get(manifest.stage),
        "funnel": calls.get("funnel") or {},
        "rejected": {part: reasons for part, reasons in refused.items() if reasons},
        **{role: _model(settings.get(role)) for role in ("constructor", "verifier", "reverifier")},
        "attempts": settings.get("attempts"),
        "guidelines": settings.get("guidelines") or {},
        "token_limit": settings.get("max_length"),
        "tokenizer": _placeless(settings.get("tokenizer")),
        "settings": {name: value for name, value in settings.items() if name not in _TOLD_APART},
        "inputs": manifest.inputs,
        "version": manifest.version,
    }


def _model(identity: Any) -> str | None:
    """The name in what a manifest keeps of a model."""
    name = identity.get("model") if isinstance(identity, Mapping) else identity
    return None if name is None else str(name)


def _placeless(name: str | None) -> str | None:
    """Where a folder lies on somebody's machine is nobody's business."""
    return Path(name).name if name is not None and Path(name).is_absolute() else name
