"""Oracle against planted labels: every label and step code of 20,000 responses, and three trivial judges.

Responses are broken without the oracle, so each planted label is a question the oracle must answer. The trivial judges
show that strings, word overlap and the last name of the trace do not give the answers.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.values.answers import contains_token_span, match_answer, normalize_answer
from eclose.values.judgment import Criterion, Judgment, StepJudgment
from eclose.values.verdict import Verdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, BrokenResponse, FailurePlan, break_response
from eclose_world.language.values import NAME
from eclose_world.make.instances import make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES
from eclose_world.oracle.judge import judge_by_oracle
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eclose.values.instance import Instance
    from eclose.values.response import Response
    from eclose.values.three_valued import Label
    from eclose_world.make.instances import WorldItem

SEED = 20_260
BROKEN = RELIABLE = 10_000
CEILING = 0.9
"""Balanced accuracy no trivial judge may reach."""

ORACLE = "oracle"
TRIVIAL_CRITERIA = (Criterion.ALIGNMENT, Criterion.CLOSURE, Criterion.CORRECTNESS)
"""Criteria of the trivial judges."""

_NAME = re.compile(rf"\b{NAME}")


class Scored(NamedTuple):
    """Response with its planted labels, and the answers of all judges."""

    planted: BrokenResponse
    answers: dict[tuple[str, Criterion], bool]
    """Answer of each judge for each criterion."""


@dataclass
class Tally:
    """Counts of planted labels and steps, and of those the oracle found."""

    labels: int = 0
    labels_found: int = 0
    steps: int = 0
    steps_found: int = 0
    responses: int = 0
    seconds: float = 0.0

    def add(self, planted: BrokenResponse, judged: Judgment, seconds: float) -> None:
        """Count a response."""
        expected, verdict = planted.verdict, judged.verdict
        pairs = (
            (expected.locally_sound, verdict.locally_sound),
            (expected.aligned, verdict.aligned),
            (expected.closed, verdict.closed),
            (expected.complete, verdict.complete),
            (expected.correct, verdict.correct),
        )
        self.labels += len(pairs)
        self.labels_found += sum(label is judged_label for label, judged_label in pairs)
        # A step too many or too few is a step missed.
        self.steps += max(len(planted.steps), len(judged.steps))
        self.steps_found += sum(
            (step.substantive, step.sound, step.failure) == (own.substantive, own.sound, own.failure)
            for step, own in zip(planted.steps, judged.steps, strict=False)
        )
        self.responses += 1
        self.seconds += seconds


# The trivial judges.


def last_step(response: Response) -> str:
    """Return the text of the last step, where a trace usually concludes."""
    return response.trace.texts[-1] if response.trace.texts else ""


def occurs(answer: str | None, text: str) -> bool:
    """Return whether the answer's words occur in the text."""
    return answer is not None and contains_token_span(normalize_answer(text), normalize_answer(answer))


def matches_reference(instance: Instance, response: Response) -> bool:
    """Predict Acc by the package's string matcher (appendix D.5.3)."""
    return response.answer is not None and match_answer(response.answer, instance.reference_answer or "")


def same_words(instance: Instance, response: Response) -> bool:
    """Predict Acc by the words of an accepted answer in any order; with the reference, close to the upper limit."""
    return any(
        sorted(normalize_answer(response.answer or "")) == sorted(normalize_answer(answer))
        for answer in instance.accepted_answers
    )


def stands_in_last_step(_: Instance, response: Response) -> bool:
    """Predict C by whether the last step has the answer's words."""
    return occurs(response.answer, last_step(response))


def stands_in_nearest_passage(instance: Instance, response: Response) -> bool:
    """Predict any criterion by whether the passage nearest to the question has the answer's words."""
    question_words = set(normalize_answer(instance.question))
    nearest = max(
        instance.evidence,
        key=lambda passage: len(question_words & set(normalize_answer(f"{passage.title} {passage.text}"))),
    )
    return occurs(response.answer, f"{nearest.title} {nearest.text}")


def is_last_name(_: Instance, response: Response) -> bool:
    """Predict C by whether the last name or number of the last step is the answer."""
    named = re.findall(rf"{_NAME.pattern}|\b\d[\d,]*\b", last_step(response))
    return bool(named) and response.answer is not None and match_answer(response.answer, named[-1])


def names_first_entity(instance: Instance, response: Response) -> bool:
    """Predict A by whether the trace mentions the first name of the question."""
    # The first word is large in any question.
    named = _NAME.findall(instance.question.split(maxsplit=1)[1])
    return bool(named) and named[0] in " ".join(response.trace.texts)


BEYOND = ("same words, for information", Criterion.CORRECTNESS)
"""Correctness with a reference is decided by words; printed, and not part of the goal."""

JUDGES: dict[tuple[str, Criterion], Callable[[Instance, Response], bool]] = {
    ("answer strings", Criterion.CORRECTNESS): matches_reference,
    BEYOND: same_words,
    ("answer strings", Criterion.CLOSURE): stands_in_last_step,
    ("nearest passage", Criterion.ALIGNMENT): stands_in_nearest_passage,
    ("nearest passage", Criterion.CLOSURE): stands_in_nearest_passage,
    ("nearest passage", Criterion.CORRECTNESS): stands_in_nearest_passage,
    ("names in the trace", Criterion.ALIGNMENT): names_first_entity,
    ("names in the trace", Criterion.CLOSURE): is_last_name,
}


def label_of(verdict: Verdict, criterion: Criterion) -> Label:
    """Return the label of a criterion."""
    return {
        Criterion.ALIGNMENT: verdict.aligned,
        Criterion.CLOSURE: verdict.closed,
        Criterion.CORRECTNESS: verdict.correct,
    }[criterion]


def balanced_accuracy(pairs: Iterable[tuple[bool, bool]]) -> float:
    """Return the mean of the shares of yes and no that were predicted right."""
    counted = Counter(pairs)
    yes = counted[True, True] + counted[True, False]
    no = counted[False, False] + counted[False, True]
    return (counted[True, True] / yes + counted[False, False] / no) / 2


# The responses.


def responses(item: WorldItem, turn: int) -> list[BrokenResponse]:
    """Make two reliable responses of an item and two that fail by the next possible plans."""
    candidates = [own_response(item), break_response(item, FailurePlan(), "reliable")]
    for step in range(len(FAILURE_PLANS)):
        candidates.append(break_response(item, FAILURE_PLANS[(2 * turn + step) % len(FAILURE_PLANS)], "broken"))
        if sum(candidate is not None for candidate in candidates) == 4:
            break
    return [candidate for candidate in candidates if candidate is not None]


def own_response(item: WorldItem) -> BrokenResponse:
    """Return the item's own response, of which every label holds."""
    steps = tuple(StepJudgment(substantive=True, sound=True) for _ in item.response.trace.steps)
    return BrokenResponse(item.response, FailurePlan(), steps, Verdict(*(True,) * 5))


def run() -> tuple[dict[str, Tally], list[Scored]]:
    """Judge all responses, profile after profile in turn."""
    tallies: dict[str, Tally] = {}
    scored: list[Scored] = []
    profiles = list(BENCHMARK_PROFILES)
    for turn in count():
        if len(scored) >= BROKEN + RELIABLE:
            return tallies, scored
        item = make_world_item(profiles[turn % 3], SEED, turn // 3)
        for planted in responses(item, turn):
            start = perf_counter()
            judged = judge_by_oracle(item.instance, planted.response)
            seconds = perf_counter() - start
            tallies.setdefault(plan_name(planted.plan), Tally()).add(planted, judged, seconds)
            answers = {key: rule(item.instance, planted.response) for key, rule in JUDGES.items()}
            answers |= {
                (ORACLE, criterion): label_of(judged.verdict, criterion) is True for criterion in TRIVIAL_CRITERIA
            }
            scored.append(Scored(planted, answers))
    raise AssertionError("count() does not end")


def plan_name(plan: FailurePlan) -> str:
    """Name a plan in a word or two."""
    if plan == FailurePlan():
        return "reliable"
    local = f"{plan.local.value} " if plan.local else ""
    return f"{local}{plan.broken.value if plan.broken else plan.impact.value}"


def share(hits: int, total: int) -> str:
    """Format a share in per cent."""
    return f"{100 * hits / total:6.2f} %" if total else "—"


def main() -> int:
    """Print the tables and whether the goal holds."""
    tallies, scored = run()
    print(f"{'plan':32} {'n':>6}  labels    steps")
    for name in ["reliable", *map(plan_name, FAILURE_PLANS)]:
        tally = tallies.get(name, Tally())
        labels, steps = share(tally.labels_found, tally.labels), share(tally.steps_found, tally.steps)
        print(f"{name:32} {tally.responses:6,} {labels} {steps}")
    whole = list(tallies.values())
    total, seconds = sum(tally.responses for tally in whole), sum(tally.seconds for tally in whole)
    hits = sum(tally.labels_found for tally in whole) + sum(tally.steps_found for tally in whole)
    planted = sum(tally.labels for tally in whole) + sum(tally.steps for tally in whole)
    print(
        f"{total:,} responses, {sum(tally.steps for tally in whole):,} steps: {total / seconds:,.0f} responses a second"
    )
    print(f"{'balanced accuracy':32}      A      C    Acc")
    scores = {
        (name, criterion): balanced_accuracy(
            (label_of(case.planted.verdict, criterion) is True, case.answers[name, criterion]) for case in scored
        )
        for name, criterion in [*((ORACLE, criterion) for criterion in TRIVIAL_CRITERIA), *JUDGES]
    }
    for name in dict.fromkeys(name for name, _ in scores):
        row = (
            f"{scores[name, criterion]:.3f}" if (name, criterion) in scores else "    —"
            for criterion in TRIVIAL_CRITERIA
        )
        print(f"{name:32} {'  '.join(row)}")
    judges = [judge_ for judge_ in JUDGES if judge_ != BEYOND]
    winners = [f"{name} at {criterion.value}" for name, criterion in judges if scores[name, criterion] >= CEILING]
    if winners:
        print(f"too easy: {', '.join(winners)}")
    reliable = tallies["reliable"].responses
    complete = len(tallies) == len(FAILURE_PLANS) + 1 and reliable >= RELIABLE and total - reliable >= BROKEN
    holds = hits == planted and not winners and complete
    return print_result(
        name="world oracle",
        value=hits / planted,
        unit="share",
        goal=f"= 1 and every baseline below {CEILING:g} balanced accuracy",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
