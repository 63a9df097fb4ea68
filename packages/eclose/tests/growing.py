"""Rows of a system that answers, hour by hour, as another tool writes them."""

from __future__ import annotations

import json
import random
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def make_rows(number: int) -> list[dict[str, Any]]:
    """Return rows with a question and a response each; two in turn have the same question."""
    return list(islice(_make_rows(), number))


def _make_rows() -> Iterator[dict[str, Any]]:
    items = make_world_items("short-easy", 3)
    for turn in count():
        item = next(items)
        for plan in (FailurePlan(), FAILURE_PLANS[turn % 6]):
            if (broken := break_response(item, plan, "x")) is not None:
                yield {
                    "id": item.instance.id,
                    "user_input": item.instance.question,
                    "retrieved_contexts": [passage.text for passage in item.instance.evidence],
                    "response": "\n".join((*broken.response.trace.texts, f"Final answer: {broken.response.answer}")),
                    "reference": item.instance.reference_answer,
                }


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as JSON Lines; return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


class HourlyTraces:
    """A folder that a system writes its responses to: a file a day, some lines twice, the last one often cut."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], seed: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._lines = [json.dumps(row) + "\n" for row in rows]
        self._written = 0
        self._rest = ""
        self._rng = random.Random(seed)
        self._hour = 0

    def write_hour(self, new: int) -> None:
        """Write the rest of the cut line, some known lines and some new ones."""
        lines = self._lines[self._written : self._written + new]
        self._written += len(lines)
        known = self._lines[: self._written - len(lines)]
        # Behind the rest of the last hour's line; a new day begins with a whole line.
        text = self._rest + "".join(self._rng.sample(known, min(len(known), self._rng.randrange(3))) + lines)
        at = len(text) - self._rng.randrange(1, 40) if self._rng.random() < 0.5 and self._hour % 24 != 23 else len(text)
        with (self.folder / f"day-{self._hour // 24}.jsonl").open("a", encoding="utf-8") as file:
            file.write(text[:at])
        self._rest = text[at:]
        self._hour += 1

    def end(self) -> None:
        """Write the rest of the last line."""
        with (self.folder / f"day-{(self._hour - 1) // 24}.jsonl").open("a", encoding="utf-8") as file:
            file.write(self._rest)
        self._rest = ""
