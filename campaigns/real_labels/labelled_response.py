"""A response with its question and the labels it should get, and how some of many are chosen and written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from eclose.core.identity import hash_rank
from eclose.core.instance import Instance
from eclose.core.response import Response
from eclose.core.verdict import SettledVerdict, Verdict
from eclose.store.records import jsonl
from eclose.store.runs.folder import INSTANCES, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from eclose.core.three_valued import Label

VERDICTS = "verdicts.jsonl"
LETTERS = ("L", "A", "C", "K", "Acc")


@dataclass(frozen=True)
class LabelledResponse:
    """One response and what is so."""

    instance: Instance
    response: Response
    verdict: Verdict
    group: str
    """What was done to it, or what is wrong with it: results are shown for each."""

    @property
    def settled(self) -> SettledVerdict:
        """As validation takes it."""
        return SettledVerdict(self.response.id, self.instance.id, self.verdict, self.instance.benchmark)


def verdict_of(labels: Mapping[str, Label]) -> Verdict:
    """A verdict from the paper's letters; all five must be there."""
    if set(labels) != set(LETTERS):
        raise ValueError(f"the labels are {sorted(labels)}, not {', '.join(LETTERS)}.")
    return Verdict(*(labels[letter] for letter in LETTERS))


def choose(labelled: Iterable[LabelledResponse], most: int) -> list[LabelledResponse]:
    """So many of them, the groups in turn; which ones depends on their ids alone, and fewer are part of more."""
    groups: defaultdict[str, list[LabelledResponse]] = defaultdict(list)
    for case in sorted(labelled, key=lambda case: hash_rank("judge_real", case.response.id)):
        groups[case.group].append(case)
    turns = zip_longest(*(groups[name] for name in sorted(groups)))
    return [case for turn in turns for case in turn if case is not None][:most]


def write(folder: Path, labelled: Iterable[LabelledResponse]) -> None:
    """Questions, responses and verdicts, each in the file where the commands look for them."""
    listed = list(labelled)
    folder.mkdir(parents=True, exist_ok=True)
    questions = {case.instance.id: case.instance for case in listed}
    jsonl.write_records(folder / INSTANCES, questions.values())
    jsonl.write_records(folder / RESPONSES, (case.response for case in listed))
    jsonl.write_records(folder / VERDICTS, (case.settled for case in listed))
