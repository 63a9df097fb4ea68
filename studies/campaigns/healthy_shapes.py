"""Correct responses of the world in the shapes of real systems: none of them may be in the gap.

A shape is a case of a corpus with a known reading: its steps and its answer are replaced by those of a correct response
to a question of the world, wherever they stand in the text, the messages or the object; all else stays, such as plans,
thinking, calls, headings and sources. The response is read as a file of a user is, and judged by the exact judge of the
world. A healthy response that is counted in the gap is an error of the reader. C stays unjudged where the answer is a
sentence, which the exact judge does not read as an answer.

    python studies/campaigns/healthy_shapes.py
    python studies/campaigns/healthy_shapes.py --corpus ../shared/data/shapes/corpus.develop.jsonl    # more shapes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.errors import UserError
from eclose.judging.judge_response import judge_response
from eclose.reading import recorded
from eclose.reading.response import read_response
from eclose_world.demo import WorldJudge
from eclose_world.make.instances import make_world_items
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose_world.make.instances import WorldItem

SHAPES = Path(__file__).parents[2] / "packages/eclose/tests/fixtures/shapes/further.jsonl"
PROFILES = ("short-easy", "hotpot", "musique")
ITEMS = 100
"""Questions of each profile among which those with the right number of steps are looked for."""
_SENTENCE = re.compile(r"\w+ \w+ .*[.!。]$", re.DOTALL)
_CONCLUSION = re.compile(r"(?:So|Hence|Therefore|Thus|Consequently),? ")
_OPENER = re.compile(r"(?:It follows that|This means that|Therefore,|Thus,|So|Hence,?) ")


class Healthy(NamedTuple):
    """A correct response in a shape."""

    shape: str
    item: WorldItem
    response: Any
    steps: tuple[str, ...]
    answer: str


def replace_texts(value: Any, texts: dict[str, str]) -> Any:
    """Return a value in which texts are replaced wherever they stand, longer ones first."""
    if isinstance(value, dict):
        return {key: replace_texts(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_texts(item, texts) for item in value]
    if not isinstance(value, str):
        return value
    if value[:1] in "{[" and (parsed := _parse_json(value)) is not None:
        return json.dumps(replace_texts(parsed, texts), ensure_ascii=False)
    ordered = sorted(texts, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, ordered)), lambda match: texts[match[0]], value)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _list_strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_strings(item)
    elif isinstance(value, str):
        parsed = _parse_json(value) if value[:1] in "{[" else None
        yield from [value] if parsed is None else _list_strings(parsed)


def fill_shape(case: dict[str, Any], item: WorldItem) -> Healthy | None:
    """Return the response of the world in the shape of a case; None where the case has no place for it."""
    expected, strings = case["expected"], "\n".join(_list_strings(case["input"]))
    steps, answer = item.response.trace.texts, (item.response.answer or "").strip(" .")
    if _SENTENCE.search(expected["answer"] or ""):
        # A reply in prose: its last sentence is the answer, in its own words of conclusion.
        conclusion = _CONCLUSION.match(expected["answer"])
        if conclusion is None:
            return None
        claim = _OPENER.sub("", steps[-1])
        steps, answer = steps[:-1], f"{conclusion[0]}{claim[:1].lower()}{claim[1:]}"
    elif (expected["answer"] or "").endswith("."):
        answer += "."
    is_filled = len(steps) == len(expected["steps"]) and all(step in strings for step in expected["steps"])
    if not is_filled or not expected["answer"] or expected["answer"] not in strings:
        return None
    texts = {expected["answer"]: answer, **dict(zip(expected["steps"], steps, strict=True))}
    if case["question"]:
        texts[case["question"]] = item.instance.question
    return Healthy(case["id"], item, replace_texts(case["input"], texts), steps, answer)


def make_responses(corpora: list[Path], count: int, questions: int = ITEMS) -> Iterator[Healthy]:
    """Yield correct responses, every shape with one question after another."""
    cases = [json.loads(line) for path in corpora for line in path.read_text("utf-8").splitlines()]
    traces = [
        case
        for case in cases
        if case["expected"]["status"] == "trace"
        and case["expected"]["decidable"] == "rule"
        and case["language"] == "en"
    ]
    items = [item for profile in PROFILES for item in islice(make_world_items(profile, 5), questions)]
    by_steps: defaultdict[int, list[WorldItem]] = defaultdict(list)
    for item in items:
        by_steps[len(item.response.trace.texts)].append(item)
    made = 0
    for turn in range(questions):
        for case in traces:
            needed = len(case["expected"]["steps"]) + bool(_SENTENCE.search(case["expected"]["answer"] or ""))
            fitting = by_steps[needed]
            if turn < len(fitting) and (healthy := fill_shape(case, fitting[turn])) is not None:
                made += 1
                yield healthy
            if made == count:
                return


def read_and_judge(healthy: Healthy, judge: WorldJudge) -> str:
    """Return what became of a response: in the gap, reliable, unjudged, or without a trace."""
    instance = healthy.item.instance
    try:
        reading = read_response(healthy.response, instance.question)
    except UserError:
        return "refused"
    if not reading.steps:
        return reading.status.value
    response = recorded.build_response(reading, instance.id, json.dumps(healthy.response))
    verdict = asyncio.run(judge_response(instance, response, judge)).verdict
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete)
    if verdict.in_gap:
        return "in the gap"
    return "with a failure" if False in labels else "unjudged" if None in labels else "reliable"


def main() -> int:
    """Print what became of the responses, and those that are not healthy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=200)
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], help="further files of cases with their reading")
    options = parser.parse_args()
    judge, outcomes, shapes = WorldJudge(error_rate=0.0), Counter[str](), set[tuple[str, str]]()
    for healthy in make_responses([SHAPES, *options.corpus], options.responses):
        outcome = read_and_judge(healthy, judge)
        outcomes[outcome] += 1
        if outcome != "reliable" and (healthy.shape, outcome) not in shapes:
            print(f"{healthy.shape}: {outcome}")
        shapes.add((healthy.shape, outcome))
    print(", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common()))
    return print_result(
        name="healthy responses in the gap",
        value=outcomes["in the gap"],
        unit=f"of {outcomes.total()} in {len({shape for shape, _ in shapes})} shapes",
        goal="= 0",
        holds=outcomes.total() == options.responses and not outcomes["in the gap"],
    )


if __name__ == "__main__":
    sys.exit(main())
