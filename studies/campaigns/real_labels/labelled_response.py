"""Response with its question and true labels; selection and writing of sets of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from eclose.files import jsonl
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from eclose.values.three_valued import Label

VERDICTS = "verdicts.jsonl"
LETTERS = ("L", "A", "C", "K", "Acc")


@dataclass(frozen=True)
class LabelledResponse:
    """Response with its true labels."""

    instance: Instance
    response: Response
    verdict: Verdict
    group: str
    """Edit or error of the response, by which results are grouped."""

    @property
    def settled(self) -> SettledVerdict:
        """Verdict as validation takes it."""
        return SettledVerdict(self.response.id, self.instance.id, self.verdict, self.instance.benchmark)


def verdict_of(labels: Mapping[str, Label]) -> Verdict:
    """Build a verdict from the paper's letters; all five are required."""
    if set(labels) != set(LETTERS):
        raise ValueError(f"the labels are {sorted(labels)}, not {', '.join(LETTERS)}.")
    return Verdict(*(labels[letter] for letter in LETTERS))


def choose(labelled: Iterable[LabelledResponse], most: int) -> list[LabelledResponse]:
    """Choose at most ``most`` cases, the groups in turn, by ids alone; a smaller choice is part of a larger one."""
    groups: defaultdict[str, list[LabelledResponse]] = defaultdict(list)
    for case in sorted(labelled, key=lambda case: hash_sort_key("judge_real", case.response.id)):
        groups[case.group].append(case)
    turns = zip_longest(*(groups[name] for name in sorted(groups)))
    return [case for turn in turns for case in turn if case is not None][:most]


def write(folder: Path, labelled: Iterable[LabelledResponse]) -> None:
    """Write questions, responses and verdicts to the files that the commands read."""
    listed = list(labelled)
    folder.mkdir(parents=True, exist_ok=True)
    questions = {case.instance.id: case.instance for case in listed}
    jsonl.write_records(folder / INSTANCES_FILE, questions.values())
    jsonl.write_records(folder / RESPONSES_FILE, (case.response for case in listed))
    jsonl.write_records(folder / VERDICTS, (case.settled for case in listed))
