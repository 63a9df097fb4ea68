"""The forms of an audit: what a person is shown of a family, what is asked, and how a filled form is read.

A form is written from ``Shown`` and from nothing else, so it cannot tell whose family it is, where that comes from or
what models said of it. Forms are JSON Lines, or a table for spreadsheets.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from eclosure.construct.audit.layout import Layout
from eclosure.core.family import EvidenceEdit, Family, ViewKind
from eclosure.core.labels import Label, conjunction
from eclosure.errors import RecordError, UserError
from eclosure.protocol.material import ShownPassage, ShownStep, shown_passages, shown_steps
from eclosure.store.jsonfile import open_bytes, require_file
from eclosure.store.records import scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

GUIDELINE = "audit_family.md"
"""The locked text by which people decide."""

CELL_LIMIT = 32_767
"""What a cell of a spreadsheet holds; the rest would be cut off, or moved to the next cell."""


@dataclass(frozen=True, slots=True)
class Shown:
    """All that a person sees of a family."""

    question: str
    reference: str | None
    aliases: tuple[str, ...]
    passages: tuple[ShownPassage, ...]
    steps: tuple[ShownStep, ...]
    answer: str
    edited_passage: ShownPassage
    evidence_steps: tuple[ShownStep, ...]
    evidence_answer: str
    edited_question: str
    question_steps: tuple[ShownStep, ...]
    question_answer: str

    @classmethod
    def of(cls, family: Family, edit: EvidenceEdit) -> Shown:
        """A family with one of its evidence edits."""
        source, gold, asked = family.source, family.gold, family.question_edit.view
        place = [passage.id for passage in edit.view.evidence].index(edit.passage_id)
        return cls(
            gold.question,
            source.reference_answer,
            source.aliases,
            shown_passages(gold.evidence),
            shown_steps(gold.trace),
            gold.answer,
            shown_passages(edit.view.evidence)[place],
            shown_steps(edit.view.trace),
            edit.view.answer,
            asked.question,
            shown_steps(asked.trace),
            asked.answer,
        )


@dataclass(frozen=True, slots=True)
class GoldMarks:
    """What is asked of the response as it is."""

    correct: Label = None
    supported: Label = None
    aligned: Label = None
    closed: Label = None


@dataclass(frozen=True, slots=True)
class EvidenceMarks:
    """What is asked of the edit of the evidence."""

    isolated: Label = None
    trace_switches: Label = None
    answer_switches: Label = None


@dataclass(frozen=True, slots=True)
class QuestionMarks:
    """What is asked of the edit of the question."""

    valid: Label = None
    trace_switches: Label = None


@dataclass(frozen=True, slots=True)
class Form:
    """One family for one person; blank until somebody answers."""

    id: str
    shown: Shown
    gold: GoldMarks = field(default_factory=GoldMarks)
    evidence: EvidenceMarks = field(default_factory=EvidenceMarks)
    question: QuestionMarks = field(default_factory=QuestionMarks)
    note: str = ""


_PARTS: Mapping[ViewKind, tuple[str, type[Any]]] = {
    ViewKind.GOLD: ("gold", GoldMarks),
    ViewKind.EVIDENCE_CF: ("evidence", EvidenceMarks),
    ViewKind.QUESTION_CF: ("question", QuestionMarks),
}
MARKS: Mapping[ViewKind, tuple[str, ...]] = {
    kind: tuple(f"{part}.{mark.name}" for mark in fields(marks)) for kind, (part, marks) in _PARTS.items()
}
"""What is asked of each view, as the guideline and the columns of a table name it."""


@dataclass(frozen=True, slots=True)
class Filled:
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


def write_forms(forms: Sequence[Form], layout: Layout) -> bytes:
    """The bytes of a file of forms."""
    if layout is Layout.CSV:
        return _table(forms)
    return b"".join(json.dumps(asdict(form), ensure_ascii=False).encode() + b"\n" for form in forms)


def read_forms(path: Path) -> list[Filled]:
    """Every form of a file, JSON Lines or table by its name; all that cannot be read is told at once."""
    require_file(path)
    filled, problems = [], []
    for one in _rows(path) if path.suffix.lower() == ".csv" else _lines(path):
        if isinstance(one, RecordError):
            problems.append(str(one))
        else:
            filled.append(one)
    refuse(path, problems)
    if not filled:
        raise UserError(f"{path}: holds no form. Is this the file you meant?")
    return filled


def refuse(path: Path, problems: Sequence[str], most: int = 10) -> None:
    """Raise with all problems of a file, or the first so many."""
    if problems:
        listed = [problem.removeprefix(f"{path} ") for problem in problems[:most]]
        if len(problems) > most:
            listed.append(f"and {len(problems) - most} more")
        raise UserError(f"{path}: cannot be used as it is. {'; '.join(listed)}.")


def _lines(path: Path) -> Iterator[Filled | RecordError]:
    for record in scan(path, Form):
        if record.value is None:
            assert record.error is not None  # reading a form sets nothing aside
            yield record.error
        else:
            form = record.value
            marks = {
                f"{part}.{name}": mark
                for part, _ in _PARTS.values()
                for name, mark in asdict(getattr(form, part)).items()
            }
            yield Filled(record.where, form.id, form.shown.question, marks, form.note)


# Tables.

_QUESTION, _NOTE = "question asked", "note"
_WORDS: Mapping[str, Label] = {
    "yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False, "": None,
}  # fmt: skip
_STARTS_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _table(forms: Sequence[Form]) -> bytes:
    """A row a form, what is asked beside what it is about. By the mark at its start spreadsheets know UTF-8."""
    rows = [_cells(form) for form in forms]
    columns = list(dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", quoting=csv.QUOTE_ALL)
    table.writeheader()
    table.writerows(rows)
    return text.getvalue().encode("utf-8-sig")


def _cells(form: Form) -> dict[str, str]:
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
    return {name: _cell(name, text) for name, text in cells.items()}


def _cell(name: str, text: str) -> str:
    """A text that no spreadsheet takes for a formula: a quote before it makes it a text."""
    if len(text) >= CELL_LIMIT:
        raise UserError(
            f"{name}: {len(text):,} characters do not fit into a cell. Write the forms with --format jsonl."
        )
    risky = text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_STARTS_FORMULA)
    return f"'{text}" if risky else text


def _numbered(steps: Iterable[ShownStep]) -> str:
    return "\n".join(f"{step.id}. {step.text}" for step in steps)


def _passage(passage: ShownPassage) -> str:
    return f"[{passage.index}] {passage.title}\n{passage.text}"


def _rows(path: Path) -> Iterator[Filled | RecordError]:
    with open_bytes(path) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8. Save the table as CSV UTF-8.") from error
    table = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    try:
        header = next(table, [])
        _check_header(path, header)
        for number, row in enumerate(table, start=2):
            if any(cell.strip() for cell in row):
                yield _row(path, f"row {number}", dict(zip(header, row, strict=False)))
    except csv.Error as error:
        raise UserError(f"{path}: is not a table that can be read ({error}). Save it as CSV UTF-8 again.") from error


def _delimiter(text: str) -> str:
    """Where a comma marks decimals, spreadsheets write semicolons. No name of a column has either."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count)


def _check_header(path: Path, header: Sequence[str]) -> None:
    times = Counter(header)
    needed = ("id", _QUESTION, *(name for names in MARKS.values() for name in names), _NOTE)
    if wrong := [name for name in needed if times[name] != 1]:
        raise UserError(f"{path}: needs each of these columns once: {', '.join(wrong)}. Is this a table of forms?")


def _row(path: Path, where: str, cells: Mapping[str, str]) -> Filled | RecordError:
    marks: dict[str, Label] = {}
    problems = [] if cells.get("id", "").strip() else ["id: is empty"]
    for name in (name for names in MARKS.values() for name in names):
        word = cells.get(name, "").strip()
        if word.lower() in _WORDS:
            marks[name] = _WORDS[word.lower()]
        else:
            problems.append(f"{name}: {word!r} is no answer; write yes or no")
    if problems:
        return RecordError("; ".join(problems), path=path, record=where)
    return Filled(where, cells["id"].strip(), cells.get(_QUESTION, ""), marks, cells.get(_NOTE, "").strip())
