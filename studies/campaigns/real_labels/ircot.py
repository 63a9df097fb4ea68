"""Traces that people wrote for IRCoT, as responses: the conclusion is the answer, the steps before it the trace.

They were written to be right, and after reading all 69 we let that stand for 46. In 14 a step claims what the
passages do not say, often what the benchmark wants to hear; nine can be disputed and are left out. ``human.jsonl``
has both, each with its reason.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from eclose.files.json_reader import read_json_objects
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from eclose.values.verdict import Verdict

from .labelled_response import LabelledResponse, verdict_of

FILES = {
    "HotpotQA": "traces/ircot_cot_hotpotqa_29.json",
    "2WikiMultiHopQA": "traces/ircot_cot_2wikimultihopqa_20.json",
    "MuSiQue": "traces/ircot_cot_musique_20.json",
}
LABELS = Path(__file__).with_name("human.jsonl")
RELIABLE = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True)
AS_WRITTEN = "as written"
_CONCLUSION = re.compile(r"So the answer is: (?P<answer>.+)\.")


def read_notes() -> dict[str, dict[str, Any]]:
    """Read the notes on traces by the id of their question; a trace without a note is reliable."""
    listed = [raw.value for raw in read_json_objects(LABELS) if raw.value is not None]
    return {note["question_id"]: note for note in listed}


def read_traces(data: Path) -> dict[str, tuple[Instance, Response]]:
    """Read all 69 traces by the id of their question."""
    traces = {}
    for benchmark, file in FILES.items():
        for record in json.loads((data / file).read_text("utf-8")):
            traces[record["question_id"]] = _pair(record, benchmark)
    return traces


def human_set(data: Path) -> list[LabelledResponse]:
    """Return the traces that can be labelled, with their labels."""
    notes, responses = read_notes(), []
    for question_id, (instance, response) in read_traces(data).items():
        note = notes.get(question_id, {})
        if "left_out" not in note:
            verdict = verdict_of(note["labels"]) if note else RELIABLE
            responses.append(LabelledResponse(instance, response, verdict, AS_WRITTEN))
    return responses


def _pair(record: dict[str, Any], benchmark: str) -> tuple[Instance, Response]:
    name = record["question_id"]
    evidence = tuple(
        Passage(f"p{passage['idx']}", passage["title"], passage["paragraph_text"]) for passage in record["paragraphs"]
    )
    *steps, last = (step["cot_sent"].strip() for step in record["reasoning_steps"])
    concluded = _CONCLUSION.fullmatch(last)
    if concluded is None:
        raise ValueError(f"{name}: {last!r} is no conclusion.")
    instance = Instance(name, record["question"], evidence, record["answer"], benchmark=benchmark)
    return instance, Response(f"human-{name}", name, Trace.of(*steps), concluded["answer"])
