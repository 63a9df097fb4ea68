"""Time to assign annotators at the paper's size (appendix A.3): 2,598 responses, 866 questions, two of six people each.

Larger and odder projects are timed beside it, up to 100,000 responses. Goals are held against processor time: this is
one thread of plain computation, and a busy machine should not mislead. The clock is printed beside it.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose_annotate.assignment.assign import AssignmentItem, AssignmentPlan, assign_to_annotators
from studies.perf.result import print_result

GOAL = 5.0
"""Seconds for the paper's project."""
LARGE_GOAL = 30.0
"""Seconds for each of the others."""
ROUNDS = 3
"""The paper's project is assigned this often, must come out the same, and the best time counts."""
OTHERS = {
    "seven annotators, one left out of each question": (300, (3,), 7, 2),
    "three of nine": (300, (3,), 9, 3),
    "questions with one to four responses": (400, (1, 2, 3, 4), 8, 2),
    "100,000 responses, two of six": (33_334, (3,), 6, 2),
    "100,000 responses, three of twenty": (33_334, (3,), 20, 3),
}
"""Questions, numbers of responses taken in turn, annotators, annotators per response."""


def make_items(questions: int, sizes: tuple[int, ...]) -> list[AssignmentItem]:
    """Make one response by each of the first models to every question."""
    return [
        AssignmentItem(f"q{number}/m{model}", f"q{number}", f"m{model}")
        for number in range(questions)
        for model in range(sizes[number % len(sizes)])
    ]


class Run(NamedTuple):
    """An assignment, the processor time it took, and the time by the clock."""

    assignment: AssignmentPlan
    seconds: float
    clock: float


def time_assignment(items: list[AssignmentItem], people: int, size: int) -> Run:
    """Assign the items once and measure both times."""
    names = [f"A{number}" for number in range(1, people + 1)]
    start, clock = process_time(), perf_counter()
    assignment = assign_to_annotators(items, names, per_response=size)
    return Run(assignment, process_time() - start, perf_counter() - clock)


def count_repeats(assignment: AssignmentPlan) -> int:
    """Return how often an annotator gets a further response to a question."""
    return sum(len(queue) - len({item.question for item in queue}) for queue in assignment.queues.values())


def count_by_model(assignment: AssignmentPlan) -> dict[str, list[int]]:
    """Return the number of responses of each annotator by model."""
    cells = Counter((task.item.system, task.annotator) for task in assignment.tasks)
    return {model: [cells[model, name] for name in assignment.annotators] for model, _ in cells}


def format_project(name: str, run: Run) -> str:
    """Format the counts and times of a project."""
    summary, by_model = run.assignment.summary(), count_by_model(run.assignment).values()
    counts = {"loads": summary.loads.values(), "groups": summary.groups.values()}
    spreads = "  ".join(f"{label} {min(numbers):,} to {max(numbers):,}" for label, numbers in counts.items())
    cells = f"by model {min(map(min, by_model)):,} to {max(map(max, by_model)):,}"
    even = all(max(numbers) - min(numbers) <= 1 for numbers in (*counts.values(), *by_model))
    took = f"{run.seconds:.2f} s ({run.clock:.2f} s by the clock)"
    return f"{name}: {spreads}  {cells}  repeats {count_repeats(run.assignment)}  even: {even}  {took}"


def main() -> int:
    """Assign all projects, check their counts, and print whether the goals hold."""
    paper = make_items(866, (3,))
    runs = [time_assignment(paper, 6, 2) for _ in range(ROUNDS)]
    best = min(runs, key=lambda run: run.seconds)
    summary = best.assignment.summary()
    print(format_project("2,598 responses, two of six", best))
    holds = best.seconds < GOAL and all(run.assignment == best.assignment for run in runs)
    holds &= (summary.load_spread, summary.group_spread) == ((866, 866), (173, 174))
    holds &= not count_repeats(best.assignment)
    holds &= {number for numbers in count_by_model(best.assignment).values() for number in numbers} == {288, 289}
    for name, (questions, sizes, people, size) in OTHERS.items():
        run = time_assignment(make_items(questions, sizes), people, size)
        other = run.assignment.summary()
        print(format_project(name, run), flush=True)
        holds &= run.seconds < LARGE_GOAL and other.load_spread.most - other.load_spread.least <= 1
        holds &= not count_repeats(run.assignment)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return print_result(
        name="assignment of 2,598 responses",
        value=round(best.seconds, 3),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
