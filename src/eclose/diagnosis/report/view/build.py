"""Build the index of a run: a SQLite file with everything that the list of responses shows, filters and searches.

Responses are read once, one after the other, and none is kept in memory. The file holds the same compressed blocks as
the page of a small run, one array of numbers for every filter, and full-text indexes.
"""

from __future__ import annotations

import json
import os
import sqlite3
from array import array
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.diagnosis.report.explorer.filters import (
    EXPLORER_FACETS,
    OUTCOME_WORDS,
    derive_response_facts,
    get_response_group,
    list_used_facets,
)
from eclose.diagnosis.report.html import (
    EVIDENCE_PER_CHUNK,
    RESPONSES_PER_CHUNK,
    build_index_texts,
    build_question_entry,
    build_response_detail,
    deflate_json,
    list_passage_texts,
)
from eclose.diagnosis.report.scores.explorer import build_score_entries, list_unscored_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from eclose.diagnosis.report.scores.columns import ScoreColumn
    from eclose.judged_cases import JudgedCase

INDEX_VERSION = "1"
"""Changes with the tables below: an index of another version is built again."""
# A block is compressed once for a run and read often, but a million responses must not take an hour: level 6 takes a
# third of the time of level 9 and 2 % more space.
_LEVEL = 6
_FULL_TEXT = "content='', columnsize=0, detail=none, tokenize='unicode61 remove_diacritics 0'"
_TABLES = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -131072;
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE responses (n INTEGER PRIMARY KEY, id BLOB NOT NULL, answer TEXT NOT NULL);
CREATE TABLE questions (n INTEGER PRIMARY KEY, question BLOB NOT NULL, entry TEXT NOT NULL);
CREATE TABLE blocks (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE columns (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE VIRTUAL TABLE response_texts USING fts5(text, {_FULL_TEXT});
CREATE VIRTUAL TABLE question_texts USING fts5(text, {_FULL_TEXT});
CREATE VIRTUAL TABLE passage_texts USING fts5(text, {_FULL_TEXT});
"""


def build_view_index(
    path: Path,
    cases: Iterable[JudgedCase],
    *,
    key: str,
    render: Callable[[dict[str, Any]], str],
    scores: Sequence[ScoreColumn] = (),
    worst_id: str | None = None,
    notify: Callable[[int], None] | None = None,
) -> None:
    """Write the index of a run; the file appears when it is complete.

    Args:
        path: File to write; an older one is replaced.
        cases: The responses, read once.
        key: Identity of the files that the cases come from; ``read_index_key`` returns it.
        render: Function that returns the page, from what it has to know about all responses.
        scores: Scores of detectors.
        worst_id: Id of the response that the list begins with; None for the first failure.
        notify: Called with the number of responses written so far.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.executescript(_TABLES)
            connection.execute("BEGIN")
            writer = _IndexWriter(connection, scores)
            remaining = iter(cases)
            while batch := list(islice(remaining, RESPONSES_PER_CHUNK)):
                writer.add(batch)
                if notify is not None:
                    notify(writer.total)
            writer.finish(key, render, worst_id)
            connection.execute("COMMIT")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class _IndexWriter:
    """Rows, blocks and columns of an index, a batch of responses after the other."""

    def __init__(self, connection: sqlite3.Connection, scores: Sequence[ScoreColumn]) -> None:
        self._connection = connection
        self._scores = scores
        self.total = 0
        self._names: dict[str, dict[str, int]] = {"benchmark": {}, "model": {}, "judge": {}}
        numbers = ("outcome", "steps", "question", *self._names, *(f"facet-{facet.name}" for facet in EXPLORER_FACETS))
        self._columns = {name: array("i") for name in numbers}
        self._score_columns = [array("d") for _ in scores]
        self._reasons: dict[str, int] = {}
        # Hashes instead of the questions themselves: a run may have as many questions as responses.
        self._questions: dict[tuple[str | None, str, int], int] = {}
        self._evidences: dict[tuple[int, int], int] = {}
        self._evidence_batch: list[list[list[str]]] = []

    def add(self, batch: Sequence[JudgedCase]) -> None:
        """Add the responses of one block."""
        details = [build_response_detail(case) for case in batch]
        self._add_block("details", self.total // RESPONSES_PER_CHUNK, details)
        first = self.total
        for case, detail in zip(batch, details, strict=True):
            self._add_case(case, detail)
        for entry, column in zip(
            build_score_entries(self._scores, [case.response.id for case in batch]), self._score_columns, strict=True
        ):
            column.extend(self._score_number(value) for value in entry["column"])
        assert self.total == first + len(batch)

    def _add_case(self, case: JudgedCase, detail: dict[str, Any]) -> None:
        response, columns = case.response, self._columns
        facts = derive_response_facts(case)
        columns["outcome"].append(_OUTCOME_NUMBERS[facts.outcome])
        columns["steps"].append(len(response.trace))
        columns["question"].append(self._add_question(case))
        for name, value in (
            ("benchmark", get_response_group(case, "benchmark")),
            ("model", get_response_group(case, "model")),
            ("judge", case.judgment.judge),
        ):
            columns[name].append(self._names[name].setdefault(value, len(self._names[name])))
        for facet in EXPLORER_FACETS:
            columns[f"facet-{facet.name}"].append(facet.bits(facts))
        # As JSON: a lone surrogate of a user's file cannot be stored as text.
        row = (self.total, encode_id(response.id), json.dumps(response.answer))
        self._connection.execute("INSERT INTO responses VALUES (?, ?, ?)", row)
        self._add_text("response_texts", self.total, [response.id, response.answer or "", *_list_texts(detail)])
        self.total += 1

    def _add_question(self, case: JudgedCase) -> int:
        instance = case.instance
        key = (instance.benchmark, instance.id, hash(instance))
        if (number := self._questions.get(key)) is not None:
            return number
        number = self._questions[key] = len(self._questions)
        entry = build_question_entry(instance, self._add_evidence(case))
        row = (number, encode_id(instance.question), json.dumps(entry))
        self._connection.execute("INSERT INTO questions VALUES (?, ?, ?)", row)
        texts = [instance.question, instance.reference_answer or "", *instance.aliases, instance.id]
        self._add_text("question_texts", number, texts)
        return number

    def _add_evidence(self, case: JudgedCase) -> int:
        evidence = case.instance.evidence
        key = (len(evidence), hash(evidence))
        if (number := self._evidences.get(key)) is not None:
            return number
        number = self._evidences[key] = len(self._evidences)
        passages = list_passage_texts(evidence)
        self._add_text("passage_texts", number, [text for passage in passages for text in passage])
        self._evidence_batch.append(passages)
        if len(self._evidence_batch) == EVIDENCE_PER_CHUNK:
            self._flush_evidence()
        return number

    def _flush_evidence(self) -> None:
        if self._evidence_batch:
            self._add_block("evidence", (len(self._evidences) - 1) // EVIDENCE_PER_CHUNK, self._evidence_batch)
            self._evidence_batch = []

    def _add_block(self, kind: str, number: int, values: object) -> None:
        self._connection.execute("INSERT INTO blocks VALUES (?, ?)", (f"{kind}-{number}", deflate_json(values, _LEVEL)))

    def _add_text(self, table: str, number: int, texts: Iterable[str]) -> None:
        text = "\n".join(texts).encode("utf-8", "replace").decode("utf-8")
        self._connection.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (number, text))

    def _score_number(self, value: float | str) -> float:
        """Return a score, or for a reason why there is none its number below zero."""
        return -1.0 - self._reasons.setdefault(value, len(self._reasons)) if isinstance(value, str) else value

    def finish(self, key: str, render: Callable[[dict[str, Any]], str], worst_id: str | None) -> None:
        """Write the columns, the page, and what it needs to know about all responses."""
        self._flush_evidence()
        columns, names = self._complete_columns()
        used = {facet.name: int(np.bitwise_or.reduce(columns[f"facet-{facet.name}"])) for facet in EXPLORER_FACETS}
        facets = list_used_facets(used)
        entries = build_score_entries(self._scores, [])
        score_columns = [np.asarray(column) for column in self._score_columns]
        if self._reasons:
            reasons = sorted(self._reasons)
            columns["facet-unscored"] = bits = _unscored_bits(score_columns, [self._reasons[name] for name in reasons])
            present = int(np.bitwise_or.reduce(bits))
            options = list_unscored_options(entries, reasons)
            listed = [[*option, 1 << bit] for bit, option in enumerate(options) if present >> bit & 1]
            facets.append({"name": "unscored", "label": "Without a score", "options": listed, "main": 0})
        columns |= {f"score-{entry['key']}": column for entry, column in zip(entries, score_columns, strict=True)}
        for name, column in columns.items():
            self._connection.execute("INSERT INTO columns VALUES (?, ?)", (name, column.tobytes()))
        self._connection.execute("CREATE INDEX responses_by_id ON responses (id)")
        index = {
            **build_index_texts(),
            **{f"{name}s": values for name, values in names.items()},
            "facets": facets,
            "scores": entries,
            "reasons": list(self._reasons),
            "total": self.total,
            "worst": self._find_position(worst_id),
        }
        facts = {"version": INDEX_VERSION, "key": key, "index": json.dumps(index), "page": render(index)}
        self._connection.executemany("INSERT INTO facts VALUES (?, ?)", list(facts.items()))

    def _find_position(self, response_id: str | None) -> int | None:
        if response_id is None:
            return None
        row = self._connection.execute("SELECT n FROM responses WHERE id = ?", (encode_id(response_id),)).fetchone()
        return None if row is None else int(row[0])

    def _complete_columns(self) -> tuple[dict[str, NDArray[Any]], dict[str, list[str]]]:
        """Return the columns as arrays, and the names that columns refer to by number."""
        columns: dict[str, NDArray[Any]] = {
            name: np.asarray(column, dtype=np.int32) for name, column in self._columns.items()
        }
        names: dict[str, list[str]] = {}
        for name, numbers in self._names.items():
            # Numbered in order of appearance so far; the page lists names in their own order.
            names[name] = sorted(numbers)
            ranks = {value: rank for rank, value in enumerate(names[name])}
            columns[name] = np.array([ranks[value] for value in numbers], dtype=np.int32)[columns[name]]
        order = self._connection.execute("SELECT n FROM questions ORDER BY question, n").fetchall()
        ranks_of_questions = np.empty(len(order), dtype=np.int32)
        ranks_of_questions[[number for (number,) in order]] = np.arange(len(order), dtype=np.int32)
        columns["question-rank"] = ranks_of_questions[columns["question"]]
        return columns, names


_OUTCOME_NUMBERS = {name: number for number, name in enumerate(OUTCOME_WORDS)}


def _unscored_bits(columns: Sequence[NDArray[Any]], reason_numbers: Sequence[int]) -> NDArray[Any]:
    """Return the options of the filter "without a score" for each response, in the order of their list."""
    missing = [column < 0 for column in columns]
    bits = np.zeros(len(columns[0]), dtype=np.int32)
    options = [np.logical_or.reduce(missing), *missing]
    options += [np.logical_or.reduce([column == -1.0 - number for column in columns]) for number in reason_numbers]
    for bit, holds in enumerate(options):
        bits |= holds.astype(np.int32) << bit
    return bits


def _list_texts(detail: dict[str, Any]) -> list[str]:
    """Return the texts of a response that a search looks at, as on the page of a small run."""
    texts = [detail.get(name) for name in ("broken", "pursued", "established", "missing")]
    texts += [*detail.get("reasons", {}).values(), *detail.get("unjudged", {}).values()]
    texts += [text for step in detail["steps"] for text in (step[0], step[4])]
    return [text for text in texts if text]


def encode_id(text: str) -> bytes:
    """Return a text as bytes that sort by code points; lone surrogates are encoded too."""
    return text.encode("utf-8", "surrogatepass")
