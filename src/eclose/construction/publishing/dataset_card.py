"""The card that goes with families: what they are, how many, who made them and how, and what is not known.

Facts as tables of Markdown, and the packaged text around them. Names of datasets, models, files and reasons come from
outside: they are escaped so that nothing in them is markup, a link or the end of a cell.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.construction.publishing.dataset_facts import CardFacts, read_run_facts
from eclose.core.family import Family
from eclose.core.identity import content_hash
from eclose.core.model_family import same_family
from eclose.store.records.atomic import AtomicFile
from eclose.store.runs.folder import CARD, FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from eclose.construction.publishing.dataset_facts import ByDataset

DASH = "–"
TOTAL = "all"
FIELDS: Mapping[str, str] = {
    "id": "its name, each once",
    "source": "the question as it came: passages, reference answer, other accepted answers, benchmark",
    "gold": "the original view: question, evidence, trace of steps, answer, the passages that support it, and what "
    "each step rests on",
    "evidence_edits": "one view or more over edited evidence, each with the edited passage, the first affected step "
    "(from zero) and the words that were exchanged",
    "question_edit": "the view of another question to the same evidence, and what was changed in the question",
    "findings": "what screens and verifiers said, reply by reply; empty where no model was asked",
    "provenance": "who built and who checked it, what they were told (by hash), and how often each part was tried",
}
"""The fields of a family, in words."""
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$@#]|:(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_MARK = b"\n<!-- written by eclose, "
"""Before the hash at the end of a card, by which one that somebody has worked on is known."""


class _Own(str):
    """Markdown of ours, which is not escaped."""

    __slots__ = ()


class CardTable(NamedTuple):
    """A table before it is written."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    numbers: int = 0
    """How many columns, from the right, hold numbers."""


def write_card(folder: Path | str, facts: CardFacts | None = None) -> None:
    """Write a card into a folder: of the run that lies there, unless other facts are given."""
    text = render_card(facts or read_run_facts(folder))
    with AtomicFile(Path(folder) / CARD) as file:
        file.write(text.encode())


class CardState(StrEnum):
    """What lies where the card is to be."""

    NONE = "none"
    OURS = "ours"
    """As it was written, to the last letter."""
    EDITED = "edited"
    """Ours, and somebody has worked on it."""
    FOREIGN = "foreign"


def find_card_state(folder: Path) -> CardState:
    """Whose card it is."""
    path = folder / CARD
    if not path.exists():
        return CardState.NONE
    body, found, mark = path.read_bytes().rpartition(_MARK)
    if not found:
        return CardState.FOREIGN
    return CardState.OURS if mark == _mark(body) else CardState.EDITED


def render_card(facts: CardFacts) -> str:
    """The card as Markdown, with the front matter that a hub of datasets reads."""
    text = _template().render(_context(facts)).rstrip("\n") + "\n"
    return text + (_MARK + _mark(text.encode())).decode()


def _mark(body: bytes) -> bytes:
    """So that a card that somebody has worked on is known, and kept."""
    return f"{content_hash(body.decode('utf-8', 'replace'))} -->\n".encode()


def escape_markdown(text: str) -> str:
    """Text as it is, on one line, whatever it says."""
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
    return _SPECIAL.sub(r"\\\g<0>", shown)


def name_size_category(families: int) -> str:
    """As a hub of datasets names sizes."""
    return next((name for most, name in _SIZES if families < most), "n>10M")


def _context(facts: CardFacts) -> dict[str, Any]:
    total = sum(count for splits in facts.counts.values() for count in splits.values())
    licences = {dataset: facts.licences[dataset] for dataset in facts.counts if dataset in facts.licences}
    languages = [licence.language for licence in licences.values()]
    tables = any(path.endswith(".parquet") for path in facts.files.values())
    return {
        **{field.name: getattr(facts, field.name) for field in fields(facts)},
        "table": _table,
        "tables": tables,
        "licence_ids": sorted({licence.id for licence in licences.values()}) or ["unknown"],
        "language": languages[0] if len(set(languages)) == 1 and len(licences) == len(facts.counts) else None,
        "size": _Own(name_size_category(total)),
        "files": {split: _quoted(path) for split, path in facts.files.items()},
        "counts": _by_dataset(facts.counts, across=True),
        "funnel": _by_dataset(facts.funnel) if facts.funnel else None,
        "lost": _lost(facts, total),
        "rejected": _rejected(facts.rejected) if facts.rejected else None,
        "models": _models(facts),
        "kin": ", ".join(_kin(facts)),
        "guidelines": CardTable(["role", "hash"], sorted(facts.guidelines.items())) if facts.guidelines else None,
        "settings": _settings(facts.settings) if facts.settings else None,
        "inputs": CardTable(["file", "hash"], sorted(facts.inputs.items())) if facts.inputs else None,
        "fields": CardTable(["field", "what it is"], [(field.name, FIELDS[field.name]) for field in fields(Family)]),
        "licences": CardTable(["source", "licence"], [(name, licence.told) for name, licence in licences.items()]),
        "share_alike": any(licence.share_alike for licence in licences.values()),
        **(names := _training(facts, tables)),
        "first_file": _quoted(names["train_file"]),
    }


def _by_dataset(counts: ByDataset, *, across: bool = False) -> CardTable:
    """A row for each dataset and one for all of them; a dash for what was not counted."""
    columns = list(dict.fromkeys(column for found in counts.values() for column in found))
    rows = [[name, *(found.get(column) for column in columns)] for name, found in counts.items()]
    if len(rows) != 1:
        rows.append([TOTAL, *(_sum([found.get(column) for found in counts.values()]) for column in columns)])
    if across:
        rows = [[*row, _sum(row[1:])] for row in rows]
        return CardTable(["dataset", *columns, TOTAL], rows, len(columns) + 1)
    return CardTable(["dataset", *columns], rows, len(columns))


def _sum(counts: Sequence[Any]) -> int | None:
    return None if None in counts else sum(counts)


def _lost(facts: CardFacts, total: int) -> tuple[int, int] | None:
    """What the funnel ends with and what there is, where the two differ."""
    ends = [list(found.values())[-1] for found in facts.funnel.values() if found]
    return None if not ends or sum(ends) == total else (sum(ends), total)


def _rejected(rejected: Mapping[str, Mapping[str, int]]) -> CardTable:
    rows = [
        (part, reason, count)
        for part, reasons in rejected.items()
        for reason, count in sorted(reasons.items(), key=lambda told: (-told[1], told[0]))
    ]
    return CardTable(["part", "reason", "sources"], rows, 1)


def _models(facts: CardFacts) -> CardTable:
    told = {
        "wrote responses and edits": facts.constructor,
        "screened and verified": facts.verifier,
        "verified the finished families": facts.reverifier,
    }
    return CardTable(["", "model"], list(told.items()))


def _kin(facts: CardFacts) -> list[str]:
    checks = dict.fromkeys(name for name in (facts.verifier, facts.reverifier) if name is not None)
    return [name for name in checks if facts.constructor is not None and same_family(name, facts.constructor)]


def _settings(settings: Mapping[str, Any]) -> CardTable:
    def told(value: Any) -> str:
        return value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)

    return CardTable(["setting", "value"], [(name, told(value)) for name, value in settings.items()])


def _training(facts: CardFacts, tables: bool) -> dict[str, str]:
    """What files training is told of, once tables are lines again."""
    names = {split: f"{split}.jsonl" for split in facts.files} if tables else dict(facts.files)
    return {"train_file": names.get("train", FAMILIES), "development_file": names.get("validation", "")}


def _quoted(text: str) -> _Own:
    """A text of JSON is one of YAML and of Python, whatever it holds."""
    return _Own(json.dumps(text, ensure_ascii=False))


def _table(told: CardTable) -> _Own:
    head = f"| {' | '.join(map(escape_markdown, told.columns))} |"
    texts = len(told.columns) - told.numbers
    rule = "|" + "---|" * texts + "---:|" * told.numbers
    return _Own("\n".join([head, rule, *(f"| {' | '.join(map(_cell, row))} |" for row in told.rows)]))


def _cell(value: object) -> str:
    if value is None:
        return DASH
    return f"{value:,}" if isinstance(value, int) else escape_markdown(str(value))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        autoescape=False,  # Markdown, not HTML: escaped as such, unless it is our own
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: escape_markdown(value) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["times"] = _times
    return environment.from_string((files(__package__) / "texts" / "card.md").read_text("utf-8"))
