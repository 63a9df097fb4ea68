"""Which families people look at: a stratified sample, drawn after the split (appendix B.6).

The draw follows from the seed and the families alone, never from the order of a file. What was drawn is written to a
key, which stays with whoever leads the audit, and to one file of forms for each person.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from eclose.construction.audit.forms import encode_forms
from eclose.construction.split import dataset_name
from eclose.core.edit_selection import draw_edit
from eclose.core.identity import content_hash, hash_rank
from eclose.errors import SettingError, UserError
from eclose.protocol.auditing import GUIDELINE, AuditForm, DisclosedFamily
from eclose.protocol.prompts import load_text
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.families import scan_families
from eclose.store.records.json_reader import require_file
from eclose.store.records.jsonl import encode
from eclose.store.runs import folder as names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eclose.construction.audit.file_names import FormFormat
    from eclose.core.family import Family
    from eclose.store.records.jsonl import ReadRecord

KEY = "audit.json"
ALL, TRAINING, DEVELOPMENT = "all", "training", "development"


@dataclass(frozen=True, slots=True)
class AuditStratum:
    """Families of one dataset in one part of the split, and how many of them are looked at."""

    dataset: str
    split: str
    families: int
    asked: int
    """Fewer are drawn where there are fewer."""
    drawn: int


@dataclass(frozen=True, slots=True)
class AuditItem:
    """A family that is looked at."""

    family_id: str
    dataset: str
    split: str
    edit: int
    """Which of its evidence edits, counted from zero."""
    forms: tuple[str, ...]
    """The ids of its forms, one for each annotator, and the last for whoever settles disagreements."""
    shown: DisclosedFamily

    def form(self, annotator: int) -> AuditForm:
        """The blank form for one annotator, numbered from 1."""
        return AuditForm(self.forms[annotator - 1], self.shown)


@dataclass(frozen=True, slots=True)
class AuditKey:
    """What was drawn, and which form is whose."""

    seed: int
    annotators: int
    guideline: str
    """Hash of the text people decide by."""
    corpus: str
    """Hash of all families, in whatever order they lay."""
    strata: tuple[AuditStratum, ...]
    items: tuple[AuditItem, ...]
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Records of the corpus that are no families of it, by reason."""

    @property
    def sizes(self) -> dict[str, int]:
        """The families of the corpus by dataset."""
        sizes: Counter[str] = Counter()
        for stratum in self.strata:
            sizes[stratum.dataset] += stratum.families
        return dict(sizes)

    def sheet(self, annotator: int) -> list[AuditForm]:
        """The blank forms for one annotator, in an order of their own."""
        return sorted((item.form(annotator) for item in self.items), key=lambda form: form.id)


def read_corpus(run: Path) -> Iterator[tuple[str, ReadRecord[Family]]]:
    """The families of a run with their part of the split; those of a single file are not split."""
    for split, path in _parts(run).items():
        yield from ((split, record) for record in scan_families(path))


def hash_corpus(run: Path) -> str:
    """The hash of all families of a run as they lie there, as a key has it of those that were drawn from."""
    hashes = []
    for split, path in _parts(run).items():
        with path.open("rb") as lines:
            hashes += [hash_rank(split, line.rstrip(b"\n").decode()) for line in lines]
    return content_hash(sorted(hashes))


def _parts(run: Path) -> dict[str, Path]:
    parts = {TRAINING: run / names.TRAIN, DEVELOPMENT: run / names.DEVELOPMENT} if run.is_dir() else {ALL: run}
    for path in parts.values():
        require_file(path)
    return parts


def draw_sample(records: Iterable[tuple[str, ReadRecord[Family]]], *, n: int, seed: int, annotators: int) -> AuditKey:
    """As many families of every dataset, of each nine for training to one for development, one edit of each."""
    if min(n, annotators) < 1:
        raise SettingError("n and annotators are at least one.")
    pools, hashes, set_aside = _pooled(records, n, seed)
    datasets = sorted({dataset for dataset, _ in pools})
    if n < len(datasets):
        raise SettingError(f"n: {n} cannot be divided over {len(datasets)} datasets. Draw at least one of each.")
    if not pools:
        raise UserError("there is no family to draw from.")
    splits = (ALL,) if ALL in {split for _, split in pools} else (TRAINING, DEVELOPMENT)
    strata, items = [], []
    for dataset, share in _shares(datasets, n, seed).items():
        for split, asked in zip(splits, _by_split(share, splits), strict=True):
            pool = pools.get((dataset, split), _Pool(n))
            drawn = pool.first(asked)
            strata.append(AuditStratum(dataset, split, pool.families, asked, len(drawn)))
            items += [_item(family, dataset, split, seed, annotators) for family in drawn]
    items.sort(key=lambda item: (item.dataset, item.family_id))
    return AuditKey(
        seed,
        annotators,
        load_text(GUIDELINE).hash,
        content_hash(sorted(hashes)),
        tuple(strata),
        tuple(items),
        set_aside,
    )


class _Pool:
    """The families of a stratum: all are counted, those that may be drawn are kept."""

    def __init__(self, most: int) -> None:
        self.families = 0
        self._most = most
        self._kept: list[tuple[int, str, Family]] = []

    def add(self, family: Family, place: int) -> None:
        self.families += 1
        # The heap gives back its least, and the family of the last place is to go.
        heapq.heappush(self._kept, (-place, family.id, family))
        if len(self._kept) > self._most:
            heapq.heappop(self._kept)

    def first(self, count: int) -> list[Family]:
        return [family for *_, family in heapq.nlargest(count, self._kept)]


def _pooled(
    records: Iterable[tuple[str, ReadRecord[Family]]], n: int, seed: int
) -> tuple[dict[tuple[str, str], _Pool], list[str], dict[str, int]]:
    """Strata by dataset and split, a hash for each family, and what was set aside."""
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
        if (first := split_of.setdefault(family.id, split)) != split:
            raise UserError(f"the family {family.id!r} is in {first} and in {split}. Split the families again.")
        dataset = dataset_name(family.source.benchmark)
        place = int(hash_rank("audit", seed, dataset, family.id), 16)
        pools.setdefault((dataset, split), _Pool(n)).add(family, place)
        hashes.append(hash_rank(split, encode(family).decode()))
    return pools, hashes, dict(sorted(set_aside.items()))


def _shares(datasets: list[str], n: int, seed: int) -> dict[str, int]:
    """The same for every dataset; what is left over goes one each to the first in seeded order."""
    each, over = divmod(n, len(datasets)) if datasets else (0, 0)
    favoured = sorted(datasets, key=lambda dataset: hash_rank("audit share", seed, dataset))[:over]
    return {dataset: each + (dataset in favoured) for dataset in datasets}


def _by_split(share: int, splits: tuple[str, ...]) -> tuple[int, ...]:
    """A tenth for development, to the nearest integer and halves up, as the corpus itself is split."""
    development = (share + 5) // 10
    return (share,) if splits == (ALL,) else (share - development, development)


def _item(family: Family, dataset: str, split: str, seed: int, annotators: int) -> AuditItem:
    edit = draw_edit(family, seed, epoch=0)
    forms = tuple(_form_id(seed, annotator, family.id) for annotator in range(1, annotators + 2))
    return AuditItem(
        family.id, dataset, split, family.evidence_edits.index(edit), forms, DisclosedFamily.of(family, edit)
    )


def _form_id(seed: int, annotator: int, family_id: str) -> str:
    """Says nothing, differs from person to person, and is no number to a spreadsheet."""
    return "f-" + hash_rank("audit form", seed, annotator, family_id)[:16]


def write_audit(folder: Path, key: AuditKey, layout: FormFormat) -> dict[Path, bool]:
    """Forms and guideline, and the key last; for each file whether it was written now.

    A file of this draw that is there already stays as it is: somebody may have filled it in. Another draw is refused.
    """
    sheets = {
        folder / f"forms-{annotator}.{layout}": encode_forms(key.sheet(annotator), layout)
        for annotator in range(1, key.annotators + 1)
    }
    guideline = {folder / GUIDELINE: load_text(GUIDELINE).text.encode()}
    place, content = folder / KEY, encode_key(key)
    known = place.exists() and place.read_bytes() == content
    for path, data in {place: content, **guideline, **({} if known else sheets)}.items():
        if path.exists() and path.read_bytes() != data:
            raise UserError(
                f"{path}: was changed, or belongs to another draw and may be in use. Write to another folder."
            )
    written = {}
    for path, data in {**guideline, **sheets, place: content}.items():
        written[path] = not path.exists()
        if written[path]:
            with AtomicFile(path) as file:
                file.write(data)
    return written


def encode_key(key: AuditKey) -> bytes:
    """The key as it is written."""
    return json.dumps(asdict(key), indent=1, ensure_ascii=False).encode() + b"\n"


def read_key(folder: Path) -> AuditKey:
    """The key of an audit's folder."""
    path = folder / KEY
    require_file(path)
    try:
        return TypeAdapter(AuditKey).validate_json(path.read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not the key of an audit, or it was changed ({invalid.error_count()} errors). "
            "Make it anew with `eclose families audit sample`: the same seed gives the same forms."
        ) from invalid
