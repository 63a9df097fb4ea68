"""Traces of GPT-3 with the labels people gave them for ROSCOE, as far as these labels mean what ours mean.

=========================================================  ==========================================================
ROSCOE (yes: the error is there; one annotator)            ours
=========================================================  ==========================================================
Factuality, Hallucination, Coherency and Logic,            L: false where one of them is on a step, true where none is
Arithmetic, on a step before the conclusion
Commonsense, alone                                         L stays open: it may be a false claim or a missing one
Missing Steps ("lacks information required to produce      K: false where yes; true where no and the answer is right;
the correct answer")                                       open where no and the answer is wrong
the answer beside the reference                            Acc, by equality; the label "Final Answer" is not used
Contradiction, Coherency 1-5, Overall Quality 1-5,         nothing: steps at odds with each other are not a trace at
Grammar, Redundancy, Repetition                            odds with its answer or its question, so A and C are open
=========================================================  ==========================================================

DROP and GSM8K only: in CosmosQA and e-SNLI people let general knowledge supply facts, which our guidelines do not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eclose.files.json_reader import read_json_objects
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from eclose.values.verdict import Verdict

from .labelled_response import LabelledResponse

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.values.three_valued import Label

FILE = "labels/roscoe_merged_755.jsonl.gz"
UNSOUND = ("Factuality", "Hallucination", "Coherency and Logic", "Arithmetic")
_NUMBER = re.compile(r"^Step \d+ -\s*")
_CONCLUSIONS = {
    "drop": ("ROSCOE DROP", re.compile(r"The answer is:? (?P<answer>yes|no)\.?", re.IGNORECASE)),
    "gsm8k": ("ROSCOE GSM8K", re.compile(r"A: (?P<answer>.+)")),
}


def roscoe_set(data: Path) -> list[LabelledResponse]:
    """Return the traces with steps, a conclusion and a label for L."""
    listed = (raw.value for raw in read_json_objects(data / FILE) if raw.value is not None)
    candidates = (_labelled(record) for record in listed if record["source"] in _CONCLUSIONS)
    return [
        candidate for candidate in candidates if candidate is not None and candidate.verdict.locally_sound is not None
    ]


def _labelled(record: dict[str, Any]) -> LabelledResponse | None:
    benchmark, conclusion = _CONCLUSIONS[record["source"]]
    *steps, last = record["steps"]
    concluded = conclusion.fullmatch(_bare(last))
    if not steps or concluded is None:
        return None
    instance = _instance(record, benchmark)
    response = Response(f"{record['id']}-response", record["id"], Trace.of(*map(_bare, steps)), concluded["answer"])
    verdict = _verdict(record, steps, _plain(concluded["answer"]) == _plain(record["reference"]))
    return LabelledResponse(instance, response, verdict, f"{benchmark}, {_fault(verdict)}")


def _instance(record: dict[str, Any], benchmark: str) -> Instance:
    """Build the question: a claim to check against a situation, or a self-contained problem."""
    premise = record["premise"]
    if record["claim"] is None:
        return Instance(
            record["id"], premise, (Passage("p0", "Problem", premise),), record["reference"], benchmark=benchmark
        )
    question = f'Is the claim "{record["claim"]}" supported by the situation?'
    evidence = (Passage("p0", "Situation", premise),)
    return Instance(record["id"], question, evidence, record["reference"], benchmark=benchmark)


def _verdict(record: dict[str, Any], steps: list[dict[str, Any]], correct: bool) -> Verdict:
    def any_step(*names: str) -> bool:
        return any(step["labels"].get(name) == "yes" for step in steps for name in names)

    sound: Label = not any_step(*UNSOUND)
    if sound and any_step("Commonsense"):
        sound = None
    missing = record["overall"]["Missing Steps"] == "yes"
    complete: Label = False if missing else (True if correct else None)
    return Verdict(locally_sound=sound, complete=complete, correct=correct)


def _fault(verdict: Verdict) -> str:
    if not verdict.locally_sound:
        return "a step unsound"
    return "steps missing" if verdict.complete is False else "no error"


def _bare(step: dict[str, Any]) -> str:
    return _NUMBER.sub("", step["text"]).strip()


def _plain(answer: str) -> str:
    """Strip currency signs, commas and full stops, and lower the case."""
    return answer.strip().strip("$.").replace(",", "").lower()
