"""Data card of families in Markdown: what they are, how many, how and by which models they were made, known limits.

Facts are tables inside a packaged text, ``texts/card.md``. Names of datasets, models, files and reasons come from
outside and are escaped, so that they cannot act as markup, as a link or as the end of a cell.
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

from eclose.construction.publishing.dataset_facts import DatasetCardFacts, read_run_facts
from eclose.core.family import Family
from eclose.core.identity import content_hash
from eclose.core.model_family import same_model_family
from eclose.store.records.atomic import AtomicFile
from eclose.store.runs.folder import CARD_FILE, FAMILIES_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from eclose.construction.publishing.dataset_facts import ByDataset

DASH = "–"
TOTAL = "all"
FIELDS: Mapping[str, str] = {
    "id": "unique name",
    "source": "the original question: passages, reference answer, other accepted answers, benchmark",
    "gold": "the original view: question, evidence, trace of steps, answer, supporting passages, and the premises of "
    "each step",
    "evidence_edits": "one or more views over edited evidence, each with the edited passage, the first affected step "
    "(from zero) and the replaced words",
    "question_edit": "the view of another question to the same evidence, and the changed part of the question",
    "findings": "judgements of screens and verifiers, one per reply; empty where no model was asked",
    "provenance": "models that built and checked the family, hash of their guidelines, and number of attempts by part",
}
"""Description of every field of a family."""
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
# Beside Markdown's own signs: bare URLs and www. addresses, which renderers turn into links, and @ and # of hubs.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$@#]|:(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_MARK = b"\n<!-- written by eclose, "
"""Start of the last line of a card; the hash after it shows whether the card was edited."""


class _Markdown(str):
    """Markdown that is not escaped."""

    __slots__ = ()


class DatasetCardTable(NamedTuple):
    """A table of a card."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    numbers: int = 0
    """Number of columns, counted from the right, that hold numbers."""


def write_dataset_card(folder: Path | str, facts: DatasetCardFacts | None = None) -> None:
    """Write a card into a folder, by default from the facts of the run in that folder."""
    text = render_dataset_card(facts or read_run_facts(folder))
    with AtomicFile(Path(folder) / CARD_FILE) as file:
        file.write(text.encode())


class DatasetCardState(StrEnum):
    """State of a folder's ``README.md``."""

    NONE = "none"
    """There is no file."""
    OURS = "ours"
    """A card, unchanged since it was written."""
    EDITED = "edited"
    """A card that was edited since."""
    FOREIGN = "foreign"
    """A file of another origin."""


def find_dataset_card_state(folder: Path) -> DatasetCardState:
    """Return whether a folder has a card, and whether the card was edited."""
    path = folder / CARD_FILE
    if not path.exists():
        return DatasetCardState.NONE
    # The last mark counts: text that was added after it makes the hash differ, as any other edit does.
    body, separator, mark = path.read_bytes().rpartition(_MARK)
    if not separator:
        return DatasetCardState.FOREIGN
    return DatasetCardState.OURS if mark == _hash_body(body) else DatasetCardState.EDITED


def render_dataset_card(facts: DatasetCardFacts) -> str:
    """Return the card as Markdown, with the front matter that dataset hubs read."""
    text = _template().render(_context(facts)).rstrip("\n") + "\n"
    return text + (_MARK + _hash_body(text.encode())).decode()


def _hash_body(body: bytes) -> bytes:
    """Return the end of the last line: an edited card is recognised by its hash, and not overwritten."""
    return f"{content_hash(body.decode('utf-8', 'replace'))} -->\n".encode()


def escape_markdown(text: str) -> str:
    """Return text that Markdown renders literally, on one line."""
    printable = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    return _SPECIAL.sub(r"\\\g<0>", printable)


def name_size_category(families: int) -> str:
    """Return the size category of dataset hubs for a number of families."""
    return next((name for most, name in _SIZES if families < most), "n>10M")


def _context(facts: DatasetCardFacts) -> dict[str, Any]:
    total = sum(count for splits in facts.counts.values() for count in splits.values())
    licences = {dataset: facts.licences[dataset] for dataset in facts.counts if dataset in facts.licences}
    languages = [licence.language for licence in licences.values()]
    tables = any(path.endswith(".parquet") for path in facts.files.values())
    return {
        **{field.name: getattr(facts, field.name) for field in fields(facts)},
        "table": _table,
        "tables": tables,
        "licence_ids": sorted({licence.id for licence in licences.values()}) or ["unknown"],
        # One language only where every dataset has it; a hub would filter by a wrong one.
        "language": languages[0] if len(set(languages)) == 1 and len(licences) == len(facts.counts) else None,
        "size": _Markdown(name_size_category(total)),
        "files": {split: _quoted(path) for split, path in facts.files.items()},
        "counts": _by_dataset(facts.counts, across=True),
        "funnel": _by_dataset(facts.funnel) if facts.funnel else None,
        "lost": _lost(facts, total),
        "rejected": _rejected(facts.rejected) if facts.rejected else None,
        "models": _models(facts),
        "same_family": ", ".join(_same_family_checkers(facts)),
        "guidelines": DatasetCardTable(["role", "hash"], sorted(facts.guidelines.items()))
        if facts.guidelines
        else None,
        "settings": _settings(facts.settings) if facts.settings else None,
        "inputs": DatasetCardTable(["file", "hash"], sorted(facts.inputs.items())) if facts.inputs else None,
        "fields": DatasetCardTable(
            ["field", "what it is"], [(field.name, FIELDS[field.name]) for field in fields(Family)]
        ),
        "licences": DatasetCardTable(
            ["source", "licence"], [(name, licence.description) for name, licence in licences.items()]
        ),
        "share_alike": any(licence.share_alike for licence in licences.values()),
        **(names := _training(facts, tables)),
        "first_file": _quoted(names["train_file"]),
    }


def _by_dataset(counts: ByDataset, *, across: bool = False) -> DatasetCardTable:
    """Return a table with a row per dataset and one for all; ``across`` adds a column of row totals."""
    columns = list(dict.fromkeys(column for row in counts.values() for column in row))
    # Missing counts are None, which is written as a dash and makes the total unknown.
    rows = [[name, *(row.get(column) for column in columns)] for name, row in counts.items()]
    if len(rows) != 1:  # a total of one dataset would repeat its row
        rows.append([TOTAL, *(_sum([row.get(column) for row in counts.values()]) for column in columns)])
    if across:
        rows = [[*row, _sum(row[1:])] for row in rows]
        return DatasetCardTable(["dataset", *columns, TOTAL], rows, len(columns) + 1)
    return DatasetCardTable(["dataset", *columns], rows, len(columns))


def _sum(counts: Sequence[Any]) -> int | None:
    return None if None in counts else sum(counts)


def _lost(facts: DatasetCardFacts, total: int) -> tuple[int, int] | None:
    """Return the families at the end of the funnel and those in the files, where the two differ."""
    ends = [list(counts.values())[-1] for counts in facts.funnel.values() if counts]
    return None if not ends or sum(ends) == total else (sum(ends), total)


def _rejected(rejected: Mapping[str, Mapping[str, int]]) -> DatasetCardTable:
    rows = [
        (stage, reason, count)
        for stage, reasons in rejected.items()
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))  # most frequent first
    ]
    return DatasetCardTable(["part", "reason", "sources"], rows, 1)


def _models(facts: DatasetCardFacts) -> DatasetCardTable:
    models = {
        "wrote responses and edits": facts.constructor,
        "screened and verified": facts.verifier,
        "verified the finished families": facts.reverifier,
    }
    return DatasetCardTable(["", "model"], list(models.items()))


def _same_family_checkers(facts: DatasetCardFacts) -> list[str]:
    """Return the checking models that belong to the constructor's model family."""
    checks = dict.fromkeys(name for name in (facts.verifier, facts.reverifier) if name is not None)
    return [name for name in checks if facts.constructor is not None and same_model_family(name, facts.constructor)]


def _settings(settings: Mapping[str, Any]) -> DatasetCardTable:
    def format_value(value: Any) -> str:
        return value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)

    return DatasetCardTable(["setting", "value"], [(name, format_value(value)) for name, value in settings.items()])


def _training(facts: DatasetCardFacts, tables: bool) -> dict[str, str]:
    """Return the file names in the training command; tables are converted to JSON Lines first."""
    names = {split: f"{split}.jsonl" for split in facts.files} if tables else dict(facts.files)
    return {"train_file": names.get("train", FAMILIES_FILE), "development_file": names.get("validation", "")}


def _quoted(text: str) -> _Markdown:
    """Return a string literal; one of JSON is valid in YAML and Python too, with special characters included."""
    return _Markdown(json.dumps(text, ensure_ascii=False))


def _table(table: DatasetCardTable) -> _Markdown:
    head = f"| {' | '.join(map(escape_markdown, table.columns))} |"
    texts = len(table.columns) - table.numbers
    rule = "|" + "---|" * texts + "---:|" * table.numbers
    return _Markdown("\n".join([head, rule, *(f"| {' | '.join(map(_cell, row))} |" for row in table.rows)]))


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
        autoescape=False,  # this is not HTML: ``finalize`` escapes plain strings for Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: escape_markdown(value) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["times"] = _times
    return environment.from_string((files(__package__) / "texts" / "card.md").read_text("utf-8"))
