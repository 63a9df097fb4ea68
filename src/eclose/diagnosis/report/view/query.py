"""Filter, search, sort and page the responses of an index.

Filters are arrays in memory, 4 bytes for each response and filter; texts stay in the file. Counts and order are those
of the page of a small run. A search differs: it matches whole words and beginnings of words, not any part of a word.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eclose.diagnosis.report.view.build import INDEX_VERSION, encode_id
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PAGE_ROWS = 500
"""Responses that the browser holds at a time."""
_REMEMBERED = 16
"""Results of searches and selections that are kept: paging through a list does not search again."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class ResponseQuery:
    """Filters, search and order that the reader chose on the page."""

    choices: Mapping[str, str] = field(default_factory=dict)
    """Name of the chosen option by facet."""
    search: str = ""
    in_passages: bool = False
    sort: str = "worst"
    score: str = ""
    """Key of the detector whose score is bounded."""
    lowest: float | None = None
    highest: float | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Value that is equal for equal queries."""
        return (tuple(sorted(self.choices.items())), *list(vars(self).values())[1:])


@dataclass(frozen=True)
class ResponseSelection:
    """The responses that a query selects, in order, with the counts of every option."""

    positions: NDArray[np.int64]
    counts: list[list[int]]
    """Responses that each option of each facet would show, all other filters unchanged."""
    unscored: int
    """Responses that were left out because they have no score to bound."""


def read_index_key(path: Path) -> str | None:
    """Return the key that an index was built with; None where there is no index of this version."""
    try:
        connection = _connect(path)
        try:
            facts = dict(connection.execute("SELECT name, value FROM facts WHERE name IN ('version', 'key', 'page')"))
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    # Without a page it was not finished.
    return facts.get("key") if facts.get("version") == INDEX_VERSION and "page" in facts else None


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)


class ViewIndex:
    """An index that is open for reading, for any number of threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One request at a time: the connection and what is remembered are shared.
        self._lock = RLock()
        self._remembered: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        try:
            self._connection = _connect(path)
            self.data: dict[str, Any] = json.loads(self.read_fact("index"))
            # Scores are numbers, all other columns codes.
            self._columns: dict[str, NDArray[np.int32]] = {}
            self._scores: dict[str, NDArray[np.float64]] = {}
            for name, data in self._connection.execute("SELECT name, data FROM columns"):
                if name.startswith("score-"):
                    self._scores[name] = np.frombuffer(data, dtype=np.float64)
                else:
                    self._columns[name] = np.frombuffer(data, dtype=np.int32)
        except (sqlite3.Error, ValueError) as error:
            raise UserError(f"{path}: cannot be read as the index of a run ({error}). Delete it; it is built again."
                            ) from error  # fmt: skip
        self.total = int(self.data["total"])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def read_fact(self, name: str) -> str:
        """Return a fact of the index by name; empty where it is not there."""
        rows = self._execute("SELECT value FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def read_block(self, name: str) -> bytes | None:
        """Return a compressed block of details or passages by name, such as ``details-3``."""
        rows = self._execute("SELECT data FROM blocks WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def find_position(self, response_id: str) -> int | None:
        """Return the position of a response; None where there is none of this id."""
        rows = self._execute("SELECT n FROM responses WHERE id = ? LIMIT 1", (encode_id(response_id),))
        return int(rows[0][0]) if rows else None

    def select(self, query: ResponseQuery) -> ResponseSelection:
        """Return the responses that a query selects."""
        with self._lock:
            selection: ResponseSelection = self._remember(("select", *query.identity), lambda: self._select(query))
        return selection

    def read_page(self, query: ResponseQuery, first: int, *, response_id: str | None = None) -> dict[str, Any]:
        """Return one page of the list in the form that the browser takes.

        Args:
            query: Filters, search and order.
            first: Rank in the list of the first response to return, counted from 0.
            response_id: Return the page that holds this response instead; the first page where the filters exclude it.
        """
        selection = self.select(query)
        position = None if response_id is None else self.find_position(response_id)
        rank = None if position is None else _find_rank(selection.positions, position)
        if rank is not None:
            first = rank
        first = max(0, min(first, len(selection.positions) - 1)) // PAGE_ROWS * PAGE_ROWS
        return {
            "matches": len(selection.positions),
            "counts": selection.counts,
            "unscored": selection.unscored,
            "first": first,
            # Rank of the requested response, None outside the filters; ``known`` is false where there is no such id.
            "at": rank,
            "known": response_id is None or position is not None,
            **self._read_rows(selection.positions[first : first + PAGE_ROWS]),
        }

    def _read_rows(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Return the columns of some responses; each question is listed once, and rows refer to it."""
        numbers = [int(position) for position in positions]
        rows = {n: (id_, answer) for n, id_, answer in self._execute_in("responses", numbers)}
        questions, question_of = np.unique(self._columns["question"][positions], return_inverse=True)
        entries = {n: json.loads(entry) for n, _, entry in self._execute_in("questions", questions.tolist())}
        return {
            "positions": numbers,
            "ids": [rows[n][0].decode("utf-8", "surrogatepass") for n in numbers],
            "answers": [json.loads(rows[n][1]) for n in numbers],
            "question": question_of.tolist(),
            "questions": [entries[int(n)] for n in questions],
            **{name: self._columns[name][positions].tolist() for name in ("steps", "outcome", *_NAMED, "judge")},
            "scores": [self._read_scores(entry["key"], positions) for entry in self.data["scores"]],
        }

    def _read_scores(self, key: str, positions: NDArray[np.int64]) -> list[float | str]:
        """Return the scores of some responses, or the reason why there is none."""
        reasons = self.data["reasons"]
        values = self._scores[f"score-{key}"][positions].tolist()
        return [value if value >= 0 else reasons[int(-1 - value)] for value in values]

    def _execute(self, statement: str, parameters: Sequence[object]) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, parameters).fetchall()

    def _execute_in(self, table: str, numbers: Sequence[int]) -> list[Any]:
        marks = ", ".join("?" * len(numbers))
        return self._execute(f"SELECT * FROM {table} WHERE n IN ({marks})", numbers)

    def _remember(self, key: tuple[object, ...], compute: Callable[[], Any]) -> Any:
        """Return a value that was computed before, or compute it."""
        if key in self._remembered:
            return self._remembered[key]
        value = self._remembered[key] = compute()
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return value

    def _select(self, query: ResponseQuery) -> ResponseSelection:
        """Apply filters, search and bounds of a score, and count the responses of every option."""
        facets = [*self.data["facets"], *_name_facets(self.data)]
        chosen = {
            facet["name"]: self._test_option(facet, query.choices[facet["name"]])
            for facet in facets
            if query.choices.get(facet["name"])
        }
        everything = np.ones(self.total, dtype=bool)
        base = everything if not query.search.strip() else self._match(query.search, in_passages=query.in_passages)
        unscored = 0
        if (scores := self._scores.get(f"score-{query.score}")) is not None and _is_bounded(query):
            within = _is_within(scores, query)
            unscored = int(np.count_nonzero(_combine_masks([base, *chosen.values()]) & (scores < 0)))
            base = base & within
        rows = _combine_masks([base, *chosen.values()])
        counts = []
        for facet in facets:
            # An option's number tells what choosing it would show: all other filters hold.
            others = [test for name, test in chosen.items() if name != facet["name"]]
            counts.append(self._count(facet, _combine_masks([base, *others]) if facet["name"] in chosen else rows))
        return ResponseSelection(self._order(np.flatnonzero(rows), query.sort), counts, unscored)

    def _column(self, facet: Mapping[str, Any]) -> NDArray[np.int32]:
        return self._columns[facet.get("column", f"facet-{facet['name']}")]

    def _test_option(self, facet: Mapping[str, Any], name: str) -> NDArray[np.bool_]:
        """Return which responses have an option of a facet; all of them for an unknown option."""
        number = next((option[2] for option in facet["options"] if option[0] == name), None)
        column = self._column(facet)
        if number is None:
            return np.ones(len(column), dtype=bool)
        # A facet of one column has a value for each option, others have a bit.
        matches: NDArray[np.bool_] = column == number if "column" in facet else (column & number) != 0
        return matches

    def _count(self, facet: Mapping[str, Any], rows: NDArray[np.bool_]) -> list[int]:
        """Return the number of responses of each option among some."""
        # Few different values: each is counted once, and then belongs to the options whose bit it has.
        totals = np.bincount(self._column(facet)[rows])
        values = np.flatnonzero(totals)
        if "column" in facet:
            return [int(totals[option[2]]) if option[2] < len(totals) else 0 for option in facet["options"]]
        return [int(totals[values[(values & option[2]) != 0]].sum()) for option in facet["options"]]

    def _order(self, positions: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
        """Return positions in the order that the reader chose; equal ones as they are in the run."""
        columns = self._columns
        # Orders by score are named ``low-KEY`` and ``high-KEY``.
        direction, _, key = sort.partition("-")
        ranks: NDArray[Any]
        if sort == "question":
            ranks = columns["question-rank"][positions]
        elif sort == "model":
            ranks = (columns["benchmark"] * len(self.data["models"]) + columns["model"])[positions]
        elif sort == "long":
            ranks = -columns["steps"][positions]
        elif f"score-{key}" in self._scores:
            scores = self._scores[f"score-{key}"][positions]
            ranks = np.where(scores < 0, 9.0, scores if direction == "low" else -scores)
        elif sort == "given":
            return positions
        else:
            outcome = columns["outcome"][positions].astype(np.int16)
            ranks = np.where(outcome == 0, np.int16(99), outcome)
            if self.data["worst"] is not None:
                ranks[positions == self.data["worst"]] = -1
        return positions[np.argsort(ranks, kind="stable")]

    def _match(self, search: str, *, in_passages: bool) -> NDArray[np.bool_]:
        """Return which responses contain every word of a search, whole or as the beginning of a word."""
        words = _WORD.findall(search.lower())
        # Punctuation alone is not indexed, so it matches nothing.
        return _combine_masks(
            [self._match_word(word, in_passages=in_passages) for word in words] or [np.zeros(self.total, bool)]
        )

    def _match_word(self, word: str, *, in_passages: bool) -> NDArray[np.bool_]:
        rows: NDArray[np.bool_] = self._remember(
            ("word", word, in_passages), lambda: self._find_word(word, in_passages=in_passages)
        )
        return rows

    def _find_word(self, word: str, *, in_passages: bool) -> NDArray[np.bool_]:
        """Return which responses contain a word in their own texts, their question, or its passages."""
        rows = np.zeros(self.total, dtype=bool)
        rows[self._find_rows("response_texts", word)] = True
        matches = np.zeros(int(self._columns["question"].max()) + 1, dtype=bool)
        matches[self._find_rows("question_texts", word)] = True
        if in_passages:
            passages = set(self._find_rows("passage_texts", word))
            matches[[n for n, evidence in enumerate(self._list_evidences()) if evidence in passages]] = True
        return np.logical_or(rows, matches[self._columns["question"]])

    def _list_evidences(self) -> list[int]:
        """Return the number of the set of passages of every question."""
        statement = "SELECT json_extract(entry, '$[4]') FROM questions ORDER BY n"
        numbers: list[int] = self._remember(("evidences",), lambda: [row[0] for row in self._execute(statement, ())])
        return numbers

    def _find_rows(self, table: str, word: str) -> list[int]:
        return [row[0] for row in self._execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (f'"{word}"*',))]


_NAMED = ("benchmark", "model")


def _name_facets(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the filters by dataset and model, which compare numbers instead of bits."""
    return [
        {"name": name, "column": column, "options": [[value, value, n] for n, value in enumerate(data[f"{column}s"])]}
        for name, column in (("dataset", "benchmark"), ("model", "model"))
    ]


def _is_bounded(query: ResponseQuery) -> bool:
    return query.lowest is not None or query.highest is not None


def _is_within(scores: NDArray[np.float64], query: ResponseQuery) -> NDArray[np.bool_]:
    """Return which scores are within the bounds; a missing score is negative and never within."""
    lowest = 0.0 if query.lowest is None else max(query.lowest, 0.0)
    return (scores >= lowest) & (scores <= (np.inf if query.highest is None else query.highest))


def _combine_masks(masks: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return where all masks hold."""
    combined = masks[0]
    for mask in masks[1:]:
        combined = combined & mask
    return combined


def _find_rank(positions: NDArray[np.int64], position: int) -> int | None:
    """Return the rank of a position in a list, counted from 0; None where it is not in the list."""
    ranks = np.flatnonzero(positions == position)
    return int(ranks[0]) if len(ranks) else None
