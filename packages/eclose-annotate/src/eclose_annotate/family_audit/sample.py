"""Stratified sample of families for an audit, drawn after the split (appendix B.6).

The draw depends on the seed and the families only, never on the order of a file. It is written to a key, which stays
with the lead of the audit, and to a file of forms for each annotator.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from eclose.errors import SettingError, UserError
from eclose.files import run_folder as names
from eclose.files.atomic import AtomicFile
from eclose.files.families import scan_families
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import encode_json_line
from eclose.prompts.locked_texts import load_prompt_text
from eclose.values.family import draw_edit
from eclose.values.identity import content_hash, hash_sort_key
from eclose.values.instance import dataset_of_benchmark
from eclose_annotate.family_audit.forms import encode_audit_forms
from eclose_annotate.family_audit.material import AUDIT_GUIDELINE_FILE, AuditorMaterial, FamilyAuditForm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eclose.files.jsonl import ReadRecord
    from eclose.values.family import Family
    from eclose_annotate.choices import AuditFormFormat

KEY_FILE = "audit.json"
ALL, TRAINING, DEVELOPMENT = "all", "training", "development"


@dataclass(frozen=True, slots=True)
class AuditStratum:
    """Families of a dataset in a split, and the number drawn from them."""

    dataset: str
    split: str
    families: int
    asked: int
    """Families to draw; fewer are drawn where the stratum has fewer."""
    drawn: int


@dataclass(frozen=True, slots=True)
class DrawnAuditFamily:
    """A drawn family."""

    family_id: str
    dataset: str
    split: str
    edit: int
    """Index of the evidence edit on the form."""
    forms: tuple[str, ...]
    """Ids of its forms: one per annotator, and the last for the third person who settles disagreements."""
    shown: AuditorMaterial
    """The family as annotators see it."""

    def form(self, annotator: int) -> FamilyAuditForm:
        """Return the blank form for an annotator, numbered from 1."""
        return FamilyAuditForm(self.forms[annotator - 1], self.shown)


@dataclass(frozen=True, slots=True)
class AuditKey:
    """The drawn families of an audit, with the owner of every form; ``audit.json`` of its folder."""

    seed: int
    annotators: int
    guideline: str
    """Hash of the guideline for annotators."""
    corpus: str
    """Hash of all families, independent of their order."""
    strata: tuple[AuditStratum, ...]
    items: tuple[DrawnAuditFamily, ...]
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Rejected records of the corpus, counted by reason."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of families in the corpus by dataset."""
        sizes: Counter[str] = Counter()
        for stratum in self.strata:
            sizes[stratum.dataset] += stratum.families
        return dict(sizes)

    def sheet(self, annotator: int) -> list[FamilyAuditForm]:
        """Return the blank forms for an annotator; sorting by id gives each annotator another order."""
        return sorted((item.form(annotator) for item in self.items), key=lambda form: form.id)


def read_families_by_split(run: Path) -> Iterator[tuple[str, ReadRecord[Family]]]:
    """Yield the families of a run's folder with their split; those of a single file belong to ``all``."""
    paths = {TRAINING: run / names.TRAIN, DEVELOPMENT: run / names.DEVELOPMENT} if run.is_dir() else {ALL: run}
    for path in paths.values():
        require_regular_file(path)
    for split, path in paths.items():
        yield from ((split, record) for record in scan_families(path))


def draw_audit_sample(
    records: Iterable[tuple[str, ReadRecord[Family]]], *, n: int, seed: int, annotators: int
) -> AuditKey:
    """Draw ``n`` families with their split: equally many of every dataset, nine of training to one of development."""
    if min(n, annotators) < 1:
        raise SettingError("n and annotators must be at least one.")
    pools, hashes, set_aside = _pool_families(records, n, seed)
    datasets = sorted({dataset for dataset, _ in pools})
    if n < len(datasets):
        raise SettingError(f"n: {n} cannot be divided over {len(datasets)} datasets. Draw at least one of each.")
    if not pools:
        raise UserError("there is no family to draw from.")
    # A single file has no splits; its families form one stratum per dataset.
    splits = (ALL,) if ALL in {split for _, split in pools} else (TRAINING, DEVELOPMENT)
    strata, items = [], []
    for dataset, share in _shares(datasets, n, seed).items():
        # A tenth for development, rounded half up as in the corpus: 90 and 10 of 100 families of a dataset in the paper
        # (appendix B.6).
        development = 0 if splits == (ALL,) else (share + 5) // 10
        for split, count in zip(splits, (share - development, development), strict=False):
            pool = pools.get((dataset, split), _Pool(n))
            drawn = pool.select(count)
            strata.append(AuditStratum(dataset, split, pool.families, count, len(drawn)))
            items += [_make_item(family, dataset, split, seed, annotators) for family in drawn]
    items.sort(key=lambda item: (item.dataset, item.family_id))
    return AuditKey(
        seed=seed,
        annotators=annotators,
        guideline=load_prompt_text(AUDIT_GUIDELINE_FILE).hash,
        corpus=content_hash(sorted(hashes)),
        strata=tuple(strata),
        items=tuple(items),
        set_aside=set_aside,
    )


class _Pool:
    """Families of a stratum: all are counted, and the ``most`` of lowest rank are held in memory."""

    def __init__(self, most: int) -> None:
        self.families = 0
        self._most = most
        self._lowest: list[tuple[int, str, Family]] = []

    def add(self, family: Family, rank: int) -> None:
        self.families += 1
        # A heap pops its smallest item, so ranks are negated: the highest rank goes first.
        heapq.heappush(self._lowest, (-rank, family.id, family))
        if len(self._lowest) > self._most:
            heapq.heappop(self._lowest)

    def select(self, count: int) -> list[Family]:
        return [family for *_, family in heapq.nlargest(count, self._lowest)]


def _pool_families(
    records: Iterable[tuple[str, ReadRecord[Family]]], n: int, seed: int
) -> tuple[dict[tuple[str, str], _Pool], list[str], dict[str, int]]:
    """Return the pools by dataset and split, a hash of each family, and the rejected records by reason."""
    pools: dict[tuple[str, str], _Pool] = {}
    split_of: dict[str, str] = {}
    hashes: list[str] = []
    set_aside: Counter[str] = Counter()
    for split, record in records:
        if record.error is not None:
            raise record.error
        if record.value is None:
            set_aside[f"{split}: {record.rejected}"] += 1
            continue
        family = record.value
        # A family in both splits would make the development set no held-out set.
        if (first := split_of.setdefault(family.id, split)) != split:
            raise UserError(f"the family {family.id!r} is in {first} and in {split}. Split the families again.")
        dataset = dataset_of_benchmark(family.source.benchmark)
        # A hash and not a random generator: the draw must not depend on the order in which families are read.
        rank = int(hash_sort_key("audit", seed, dataset, family.id), 16)
        pools.setdefault((dataset, split), _Pool(n)).add(family, rank)
        hashes.append(hash_sort_key(split, encode_json_line(family).decode()))
    return pools, hashes, dict(sorted(set_aside.items()))


def _shares(datasets: list[str], n: int, seed: int) -> dict[str, int]:
    """Divide n equally among datasets; the remainder goes one each to the first in seeded order."""
    each, remainder = divmod(n, len(datasets)) if datasets else (0, 0)
    favoured = sorted(datasets, key=lambda dataset: hash_sort_key("audit share", seed, dataset))[:remainder]
    return {dataset: each + (dataset in favoured) for dataset in datasets}


def _make_item(family: Family, dataset: str, split: str, seed: int, annotators: int) -> DrawnAuditFamily:
    # One uniformly drawn evidence edit per family is audited (appendix B.6).
    edit = draw_edit(family, seed, epoch=0)
    # One form more than annotators: the last is for the third person. An id reveals nothing, differs between
    # annotators, and is not read as a number by spreadsheets.
    keys = (hash_sort_key("audit form", seed, annotator, family.id) for annotator in range(1, annotators + 2))
    forms = tuple(f"f-{key[:16]}" for key in keys)
    return DrawnAuditFamily(
        family_id=family.id,
        dataset=dataset,
        split=split,
        edit=family.evidence_edits.index(edit),
        forms=forms,
        shown=AuditorMaterial.of(family, edit),
    )


def write_audit_folder(folder: Path, key: AuditKey, layout: AuditFormFormat) -> dict[Path, bool]:
    """Write forms, guideline and, last, the key; return for each file whether it was written now.

    An existing file of this draw is left as it is, since it may be filled in.

    Raises:
        UserError: The folder holds files of another draw.
    """
    sheets = {
        folder / f"forms-{annotator}.{layout}": encode_audit_forms(key.sheet(annotator), layout)
        for annotator in range(1, key.annotators + 1)
    }
    guideline = {folder / AUDIT_GUIDELINE_FILE: load_prompt_text(AUDIT_GUIDELINE_FILE).text.encode()}
    key_path, content = folder / KEY_FILE, encode_audit_key(key)
    # With this draw's key in place, forms that differ are filled-in ones of this draw.
    same_draw = key_path.exists() and key_path.read_bytes() == content
    for path, data in {key_path: content, **guideline, **({} if same_draw else sheets)}.items():
        if path.exists() and path.read_bytes() != data:
            raise UserError(
                f"{path}: was changed, or belongs to another draw and may be in use. Write to another folder."
            )
    written = {}
    # The key is written last: without it, forms of an interrupted call are compared byte by byte and not taken for
    # filled-in ones.
    for path, data in {**guideline, **sheets, key_path: content}.items():
        written[path] = not path.exists()
        if written[path]:
            with AtomicFile(path) as file:
                file.write(data)
    return written


def encode_audit_key(key: AuditKey) -> bytes:
    """Return the content of the file of a key."""
    return json.dumps(asdict(key), indent=1, ensure_ascii=False).encode() + b"\n"


def read_audit_key(folder: Path) -> AuditKey:
    """Read the key of an audit's folder."""
    path = folder / KEY_FILE
    require_regular_file(path)
    try:
        return TypeAdapter(AuditKey).validate_json(path.read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not the key of an audit, or it was changed ({invalid.error_count()} errors). "
            "Write it again with `eclose annotate audit sample`: the same seed gives the same forms."
        ) from invalid
