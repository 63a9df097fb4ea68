"""Facts for the data card of families: counts of their files, the manifest of the run that made them, and licences.

No number is entered by hand, so the card can be written again at any time. Facts that were not recorded, and licences
that are not listed, stay unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eclose.benchmarks import multi_hop
from eclose.construction.audit.file_names import AUDIT_REPORT_FILE
from eclose.construction.audit.sample import hash_run_families
from eclose.construction.split import SPLIT_STAGE, dataset_of_benchmark
from eclose.store.records.json_reader import parse_json_object, read_json_objects
from eclose.store.runs.family_files import SPLIT_FILES
from eclose.store.runs.folder import FAMILIES_FILE
from eclose.store.runs.manifest import Manifest, read_manifest
from eclose.store.runs.step import companion_file_path

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DatasetLicence:
    """Licence of a dataset."""

    id: str
    """Identifier on dataset hubs."""
    description: str
    language: str | None = None
    """Language of the texts, if known."""

    @property
    def share_alike(self) -> bool:
        """Whether derived texts must carry the same licence."""
        return "-sa-" in self.id


LICENCES: Mapping[str, DatasetLicence] = {
    multi_hop.HOTPOT_BENCHMARK: DatasetLicence("cc-by-sa-4.0", "CC BY-SA 4.0; passages from Wikipedia", "en"),
    multi_hop.MUSIQUE_BENCHMARK: DatasetLicence("cc-by-4.0", "CC BY 4.0; passages from Wikipedia", "en"),
    multi_hop.TWO_WIKI_BENCHMARK: DatasetLicence(
        "apache-2.0",
        "Apache-2.0 by the mirror of its authors; the README of its repository names none, so confirm it before you "
        "publish; passages from Wikipedia, CC BY-SA",
        "en",
    ),
}
"""Licences by benchmark name."""
SYNTHETIC_DATASETS = frozenset(
    {
        "world-2wiki",
        "world-hotpot",
        "world-musique",
        "world-short-easy",
        "world-short-hard",
        "world-confusable-short",
        "world-confusable-long",
    }
)
"""Benchmark names of the questions that ``eclose world make`` writes. Another dataset may be called world-… too."""
_SYNTHETIC_LICENCE = DatasetLicence("apache-2.0", "Apache-2.0; made up by eclose, from no other source", "en")


def find_dataset_licence(dataset: str) -> DatasetLicence:
    """Return the licence of a dataset, or an unknown one."""
    if dataset in SYNTHETIC_DATASETS:
        return _SYNTHETIC_LICENCE
    return LICENCES.get(dataset) or DatasetLicence(UNKNOWN, "unknown: look it up where the sources come from")


Maker: TypeAlias = Literal["models", "world"]
ByDataset: TypeAlias = Mapping[str, Mapping[str, int]]

SPLITS: Mapping[str, str] = {split.value: name for split, name in SPLIT_FILES.items()}
"""Files of a run by the names that dataset hubs give splits."""
_SEPARATE_SETTINGS = ("constructor", "verifier", "reverifier", "guidelines", "max_length", "tokenizer")
"""Settings that the card reports outside its table of settings."""
_MAKERS: Mapping[str, Maker] = {"construct": "models", "world families": "world"}
"""Makers of families by the stage of their manifest."""


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """Summary of an audit of these families."""

    report: str
    """Path of the report in the run's folder."""
    families: int
    """Number of families drawn."""
    open: int
    """Number of them that are not settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCardFacts:
    """Facts on a data card. None and empty values mean: not recorded."""

    counts: ByDataset
    """Families by dataset and split."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File of each split, by the names that dataset hubs give splits."""
    maker: Maker | None = None
    funnel: ByDataset = field(default_factory=dict)
    """Sources that passed each stage, by dataset; columns in order."""
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Rejected sources by stage and reason."""
    constructor: str | None = None
    verifier: str | None = None
    reverifier: str | None = None
    attempts: int | None = None
    """Most attempts at a part."""
    guidelines: Mapping[str, str] = field(default_factory=dict)
    """Hash of the guideline of each role."""
    token_limit: int | None = None
    """Longest path in tokens."""
    tokenizer: str | None = None
    """Model whose tokens were counted; None for an estimate."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All other settings."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input files with their hashes."""
    licences: Mapping[str, DatasetLicence] = field(default_factory=dict)
    """Licences by dataset."""
    version: str | None = None
    """Version of eclose."""
    audit: AuditSummary | None = None


def read_run_facts(folder: Path | str) -> DatasetCardFacts:
    """Read the facts of a run from the files of its folder."""
    folder = Path(folder)
    paths = {split: folder / name for split, name in SPLITS.items() if (folder / name).is_file()}
    counts = {split: _count_families_by_dataset(path) for split, path in paths.items()}
    files = {split: paths[split].name for split, datasets in counts.items() if datasets}
    return collect_card_facts(find_origin_manifest(folder / FAMILIES_FILE), counts, files, folder)


def collect_card_facts(
    manifest: Manifest | None, counts: Mapping[str, Mapping[str, int]], files: Mapping[str, str], folder: Path
) -> DatasetCardFacts:
    """Collect the facts of a card.

    Args:
        manifest: Manifest of the run that made the families.
        counts: Families by split and dataset.
        files: File of each split.
        folder: Folder of the run, where an audit is looked for.
    """
    datasets = sorted({dataset for split_counts in counts.values() for dataset in split_counts})
    by_dataset = {
        name: {split: split_counts.get(name, 0) for split, split_counts in counts.items()} for name in datasets
    }
    licences = {dataset: find_dataset_licence(dataset) for dataset in datasets}
    origin = {} if manifest is None else _manifest_facts(manifest)
    return DatasetCardFacts(counts=by_dataset, files=files, licences=licences, audit=_find_audit(folder), **origin)


def find_origin_manifest(families: Path) -> Manifest | None:
    """Return the manifest of the run that made a file of families; for a split, that of the complete families."""
    path = companion_file_path(families, "manifest.json")
    if not path.is_file():
        return None
    manifest = read_manifest(path)
    if not manifest.stage.startswith(SPLIT_STAGE):
        return manifest
    origin = find_origin_manifest(families.with_name(FAMILIES_FILE))
    # The complete families may have been built again since; then their manifest does not describe this split.
    same = origin is not None and origin.outputs.get(FAMILIES_FILE) == manifest.inputs.get(FAMILIES_FILE)
    return origin if same else None


def _count_families_by_dataset(path: Path) -> Counter[str]:
    return Counter(dataset_of_benchmark(source.get("benchmark")) for source in _sources(path))


def _sources(path: Path) -> Iterator[Mapping[str, Any]]:
    for raw in read_json_objects(path):
        if raw.error is not None:
            raise raw.error
        yield (raw.value or {}).get("source") or {}


def find_audit_reports(folder: Path) -> list[Path]:
    """Return the audit reports in a run's folder, or in its folder ``audit``."""
    return [path for path in (folder / AUDIT_REPORT_FILE, folder / "audit" / AUDIT_REPORT_FILE) if path.is_file()]


def _find_audit(folder: Path) -> AuditSummary | None:
    """Return the summary of an audit in a folder, if it concerns the families that are there now."""
    for path in find_audit_reports(folder):
        report = parse_json_object(path.read_bytes())
        # An audit of earlier families says nothing about these: the card then lists no audit.
        if report.get("corpus") == hash_run_families(folder):
            return AuditSummary(str(path.relative_to(folder)), sum(report["audited"].values()), len(report["open"]))
    return None


def _manifest_facts(manifest: Manifest) -> dict[str, Any]:
    settings, calls = manifest.settings, manifest.calls
    # Runs of models count rejections by stage; generated families have a single stage.
    stages = manifest.funnel or {manifest.stage: manifest.counts}
    rejected = calls.get("rejected") or {
        stage: {**counts.rejected, **counts.quarantined} for stage, counts in stages.items()
    }
    return {
        "maker": _MAKERS.get(manifest.stage),
        "funnel": calls.get("funnel") or {},
        "rejected": {stage: reasons for stage, reasons in rejected.items() if reasons},
        **{role: _model_name(settings.get(role)) for role in ("constructor", "verifier", "reverifier")},
        "attempts": settings.get("attempts"),
        "guidelines": settings.get("guidelines") or {},
        "token_limit": settings.get("max_length"),
        "tokenizer": _without_folder(settings.get("tokenizer")),
        "settings": {name: value for name, value in settings.items() if name not in _SEPARATE_SETTINGS},
        "inputs": manifest.inputs,
        "version": manifest.version,
    }


def _model_name(identity: Any) -> str | None:
    name = identity.get("model") if isinstance(identity, Mapping) else identity
    return None if name is None else str(name)


def _without_folder(name: str | None) -> str | None:
    """Return a name without the folders of an absolute path, which a published card should not reveal."""
    return Path(name).name if name is not None and Path(name).is_absolute() else name
