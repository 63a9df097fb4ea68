"""Forms of an audit: written blank and read filled in, as JSON Lines or as a table for spreadsheets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from eclose.errors import RecordError, UserError
from eclose.files.json_reader import raise_file_problems, require_regular_file
from eclose.files.jsonl import scan_records
from eclose.files.tables import LABEL_WORDS, encode_csv, read_csv
from eclose.values.family import ViewKind
from eclose.values.three_valued import Label, three_valued_and
from eclose_annotate.choices import AuditFormFormat
from eclose_annotate.family_audit.material import AUDIT_MARKS, AUDIT_PARTS, FamilyAuditForm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from eclose.prompts.material_json import DisclosedPassage, DisclosedStep

CELL_LIMIT = 32_767
"""Most characters of a spreadsheet cell; longer texts would be truncated or moved to the next cell."""


@dataclass(frozen=True, slots=True)
class FilledAuditForm:
    """A form as an annotator filled it in."""

    where: str
    """Line or row of the file, for messages."""
    id: str
    question: str
    """The original question on the form, to detect rows that were moved."""
    marks: Mapping[str, Label]
    """Answers by name; None for a missing one."""
    note: str = ""

    def passes(self, view: ViewKind) -> Label:
        """Return whether a view passes: False if any answer is no, None if one is missing, True otherwise."""
        return three_valued_and(self.marks[name] for name in AUDIT_MARKS[view])

    @property
    def unanswered(self) -> int:
        """Number of missing answers."""
        return sum(mark is None for mark in self.marks.values())

    @property
    def blank(self) -> bool:
        """Whether no question is answered."""
        return self.unanswered == len(self.marks)


def encode_audit_forms(forms: Sequence[FamilyAuditForm], layout: AuditFormFormat) -> bytes:
    """Return the content of a file of forms."""
    if layout is AuditFormFormat.JSONL:
        return b"".join(json.dumps(asdict(form), ensure_ascii=False).encode() + b"\n" for form in forms)
    # A row per form, the columns of the answers beside the texts they concern.
    rows = [_cells(form) for form in forms]
    # The columns of the form with most passages, in its order, cover those of all others.
    columns = list(dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row))
    return b"".join(encode_csv(columns, rows))


def read_filled_forms(path: Path) -> list[FilledAuditForm]:
    """Read all forms of a file, a table or JSON Lines by its name; raise one error with all problems."""
    require_regular_file(path)
    forms, problems = [], []
    for form in _read_table(path) if path.suffix.lower() == ".csv" else _read_lines(path):
        if isinstance(form, RecordError):
            problems.append(str(form))
        else:
            forms.append(form)
    raise_file_problems(path, problems)
    if not forms:
        raise UserError(f"{path}: holds no form. Check that this is the file you meant.")
    return forms


def _read_lines(path: Path) -> Iterator[FilledAuditForm | RecordError]:
    for record in scan_records(path, FamilyAuditForm):
        if record.value is None:
            assert record.error is not None  # forms are never rejected, only unreadable
            yield record.error
        else:
            form = record.value
            marks = {
                f"{part}.{name}": mark
                for part, _ in AUDIT_PARTS.values()
                for name, mark in asdict(getattr(form, part)).items()
            }
            yield FilledAuditForm(record.where, form.id, form.shown.question, marks, form.note)


# Tables.

_QUESTION, _NOTE = "question asked", "note"


def _cells(form: FamilyAuditForm) -> dict[str, str]:
    family = form.shown
    blank = {kind: dict.fromkeys(names, "") for kind, names in AUDIT_MARKS.items()}
    cells = {
        "id": form.id,
        _QUESTION: family.question,
        "reference": family.reference or "",
        "other spellings": " | ".join(family.aliases),
        "reasoning": _numbered(family.steps),
        "answer": family.answer,
        **blank[ViewKind.GOLD],
        "changed passage": _passage(family.edited_passage),
        "reasoning with it": _numbered(family.evidence_steps),
        "answer with it": family.evidence_answer,
        **blank[ViewKind.EVIDENCE_CF],
        "changed question": family.edited_question,
        "reasoning for it": _numbered(family.question_steps),
        "answer to it": family.question_answer,
        **blank[ViewKind.QUESTION_CF],
        _NOTE: "",
        **{f"passage {passage.index}": _passage(passage) for passage in family.passages},
    }
    for name, text in cells.items():
        # One character less: a quote may be put before the text.
        if len(text) >= CELL_LIMIT:
            raise UserError(
                f"{name}: {len(text):,} characters do not fit into a cell. Write the forms with --format jsonl."
            )
    return cells


def _numbered(steps: Iterable[DisclosedStep]) -> str:
    return "\n".join(f"{step.id}. {step.text}" for step in steps)


def _passage(passage: DisclosedPassage) -> str:
    return f"[{passage.index}] {passage.title}\n{passage.text}"


def _read_table(path: Path) -> Iterator[FilledAuditForm | RecordError]:
    header, rows = read_csv(path)
    counts = Counter(header)
    required = ("id", _QUESTION, *(name for names in AUDIT_MARKS.values() for name in names), _NOTE)
    if wrong := [name for name in required if counts[name] != 1]:
        raise UserError(f"{path}: needs each of these columns once: {', '.join(wrong)}. Is this a table of forms?")
    for where, cells in rows:
        yield _parse_row(path, where, cells)


def _parse_row(path: Path, where: str, cells: Mapping[str, str]) -> FilledAuditForm | RecordError:
    marks: dict[str, Label] = {}
    problems = [] if cells.get("id", "").strip() else ["id: is empty"]
    for name in (name for names in AUDIT_MARKS.values() for name in names):
        word = cells.get(name, "").strip()
        if word.lower() in LABEL_WORDS:
            marks[name] = LABEL_WORDS[word.lower()]
        else:
            problems.append(f"{name}: {word!r} is not an answer; write yes or no")
    if problems:
        return RecordError("; ".join(problems), path=path, record=where)
    return FilledAuditForm(where, cells["id"].strip(), cells.get(_QUESTION, ""), marks, cells.get(_NOTE, "").strip())
