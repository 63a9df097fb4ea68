"""The forms of an audit as files, and how a filled form is read: JSON Lines, or a table for spreadsheets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from eclose.construction.audit.file_names import FormFormat
from eclose.core.family import ViewKind
from eclose.core.three_valued import Label, conjunction
from eclose.errors import RecordError, UserError
from eclose.protocol.auditing import MARKS, PARTS, AuditForm
from eclose.store.records.csv_table import LABEL_WORDS, encode_csv, read_csv
from eclose.store.records.json_reader import raise_problems, require_file
from eclose.store.records.jsonl import scan_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from eclose.protocol.material_json import DisclosedPassage, DisclosedStep

CELL_LIMIT = 32_767
"""What a cell of a spreadsheet holds; the rest would be cut off, or moved to the next cell."""


@dataclass(frozen=True, slots=True)
class FilledForm:
    """What somebody wrote on a form."""

    where: str
    id: str
    question: str
    """The original question as the form has it, to notice rows that were moved."""
    marks: Mapping[str, Label]
    note: str = ""

    def passes(self, view: ViewKind) -> Label:
        """Whether a view passes: all that is asked of it. One no decides it, else a missing answer leaves it open."""
        return conjunction(self.marks[name] for name in MARKS[view])

    @property
    def unanswered(self) -> int:
        """How many answers are missing."""
        return sum(mark is None for mark in self.marks.values())

    @property
    def blank(self) -> bool:
        """Whether nothing was answered."""
        return self.unanswered == len(self.marks)


def encode_forms(forms: Sequence[AuditForm], layout: FormFormat) -> bytes:
    """The bytes of a file of forms."""
    if layout is FormFormat.CSV:
        return _table(forms)
    return b"".join(json.dumps(asdict(form), ensure_ascii=False).encode() + b"\n" for form in forms)


def read_forms(path: Path) -> list[FilledForm]:
    """Every form of a file, JSON Lines or table by its name; all that cannot be read is told at once."""
    require_file(path)
    filled, problems = [], []
    for one in _rows(path) if path.suffix.lower() == ".csv" else _lines(path):
        if isinstance(one, RecordError):
            problems.append(str(one))
        else:
            filled.append(one)
    raise_problems(path, problems)
    if not filled:
        raise UserError(f"{path}: holds no form. Is this the file you meant?")
    return filled


def _lines(path: Path) -> Iterator[FilledForm | RecordError]:
    for record in scan_records(path, AuditForm):
        if record.value is None:
            assert record.error is not None  # reading a form sets nothing aside
            yield record.error
        else:
            form = record.value
            marks = {
                f"{part}.{name}": mark
                for part, _ in PARTS.values()
                for name, mark in asdict(getattr(form, part)).items()
            }
            yield FilledForm(record.where, form.id, form.shown.question, marks, form.note)


# Tables.

_QUESTION, _NOTE = "question asked", "note"


def _table(forms: Sequence[AuditForm]) -> bytes:
    """A row a form, what is asked beside what it is about."""
    rows = [_cells(form) for form in forms]
    columns = list(dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row))
    return b"".join(encode_csv(columns, rows))


def _cells(form: AuditForm) -> dict[str, str]:
    shown = form.shown
    blank = {kind: dict.fromkeys(names, "") for kind, names in MARKS.items()}
    cells = {
        "id": form.id,
        _QUESTION: shown.question,
        "reference": shown.reference or "",
        "other spellings": " | ".join(shown.aliases),
        "reasoning": _numbered(shown.steps),
        "answer": shown.answer,
        **blank[ViewKind.GOLD],
        "changed passage": _passage(shown.edited_passage),
        "reasoning with it": _numbered(shown.evidence_steps),
        "answer with it": shown.evidence_answer,
        **blank[ViewKind.EVIDENCE_CF],
        "changed question": shown.edited_question,
        "reasoning for it": _numbered(shown.question_steps),
        "answer to it": shown.question_answer,
        **blank[ViewKind.QUESTION_CF],
        _NOTE: "",
        **{f"passage {passage.index}": _passage(passage) for passage in shown.passages},
    }
    for name, text in cells.items():
        # One place is for the quote that may come before it.
        if len(text) >= CELL_LIMIT:
            raise UserError(
                f"{name}: {len(text):,} characters do not fit into a cell. Write the forms with --format jsonl."
            )
    return cells


def _numbered(steps: Iterable[DisclosedStep]) -> str:
    return "\n".join(f"{step.id}. {step.text}" for step in steps)


def _passage(passage: DisclosedPassage) -> str:
    return f"[{passage.index}] {passage.title}\n{passage.text}"


def _rows(path: Path) -> Iterator[FilledForm | RecordError]:
    header, rows = read_csv(path)
    _check_header(path, header)
    for where, cells in rows:
        yield _row(path, where, cells)


def _check_header(path: Path, header: Sequence[str]) -> None:
    times = Counter(header)
    needed = ("id", _QUESTION, *(name for names in MARKS.values() for name in names), _NOTE)
    if wrong := [name for name in needed if times[name] != 1]:
        raise UserError(f"{path}: needs each of these columns once: {', '.join(wrong)}. Is this a table of forms?")


def _row(path: Path, where: str, cells: Mapping[str, str]) -> FilledForm | RecordError:
    marks: dict[str, Label] = {}
    problems = [] if cells.get("id", "").strip() else ["id: is empty"]
    for name in (name for names in MARKS.values() for name in names):
        word = cells.get(name, "").strip()
        if word.lower() in LABEL_WORDS:
            marks[name] = LABEL_WORDS[word.lower()]
        else:
            problems.append(f"{name}: {word!r} is no answer; write yes or no")
    if problems:
        return RecordError("; ".join(problems), path=path, record=where)
    return FilledForm(where, cells["id"].strip(), cells.get(_QUESTION, ""), marks, cells.get(_NOTE, "").strip())
