"""Stream of families of the world: every gate and every crossed pair, the rate on one core, and flat memory.

Beside it, what the generated questions look like next to real ones, where the real slices are at hand.
Usage: python studies/campaigns/world_families.py [FAMILIES]
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.cli.shared.output import print_table
from eclose.files.jsonl import unwrap_records
from eclose.readers.load import scan_instances
from eclose.readers.sampling import characterize_benchmarks
from eclose.values.family_rules import check_family
from eclose_world.make.families import FamilyFunnel, make_world_families
from eclose_world.make.instances import make_world_items
from eclose_world.make.shapes import BENCHMARK_PROFILES
from studies.perf.result import print_result
from tests.view_relations import (
    label_step_soundness,
    trace_establishes_answer,
    trace_pursues_question,
    warrants_only_answer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.readers.sampling import Quartiles
    from eclose.values.family import Family
    from eclose.values.instance import Instance

FAMILIES = 10_000
SEED = 2026
FLAT = 20 * 2**20
"""How much memory may still grow in the second half of the run, in bytes."""

SLICES = {
    "HotpotQA train": "qa/hotpotqa_train_100.json.gz",
    "HotpotQA validation": "qa/hotpotqa_validation_100_hf.jsonl.gz",
    "MuSiQue train": "qa/musique_ans_train_100.json.gz",
    "2WikiMultiHopQA dev": "qa/2wikimultihopqa_dev_10.json",
}


def crossed_pairs_fail(family: Family) -> bool:
    """Return whether matched pairs hold and crossed pairs fail, by the oracle's reading of the texts."""
    gold, question_view = family.gold, family.question_edit.view
    holds = (
        trace_pursues_question(gold.question, question_view.trace) is False
        and trace_pursues_question(question_view.question, gold.trace) is False
    )
    holds = holds and warrants_only_answer(question_view.question, question_view.evidence, question_view.answer) is True
    for edit in family.evidence_edits:
        view, first = edit.view, edit.first_affected_step
        holds = (
            holds
            and warrants_only_answer(gold.question, view.evidence, view.answer) is True
            and label_step_soundness(view.evidence, gold.trace)[first] is False
            and label_step_soundness(gold.evidence, view.trace)[first] is False
            and trace_establishes_answer(gold.question, gold.trace, view.answer) is False
            and trace_establishes_answer(gold.question, view.trace, gold.answer) is False
        )
    return holds


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stream(total: int) -> tuple[float, bool]:
    """Make and check families of all profiles in turn; return the rate, and whether all pass in flat memory."""
    counts: Counter[str] = Counter()
    funnels = {name: FamilyFunnel() for name in BENCHMARK_PROFILES}
    streams = [make_world_families(name, SEED, funnels[name]) for name in BENCHMARK_PROFILES]
    making = 0.0
    half = 0
    for number in range(total):
        start = time.perf_counter()
        family = next(streams[number % len(streams)])
        making += time.perf_counter() - start
        counts["gates"] += not check_family(family)
        counts["crossed"] += crossed_pairs_fail(family)
        counts["edits"] += len(family.evidence_edits)
        if number in (total // 10, total // 2, total - 1):
            print(
                f"{number + 1:>9,} families  {(number + 1) / making:6.1f}/s  peak {peak() / 2**20:6.1f} MiB", flush=True
            )
        if number == total // 2:
            half = peak()
    sources = sum(funnel.sources for funnel in funnels.values())
    dropped = sum((funnel.dropped for funnel in funnels.values()), Counter[str]())
    print(f"{sources:,} sources = {total:,} families + {sum(dropped.values()):,} passed over {dict(dropped)}")
    print(f"pass every gate: {counts['gates']:,}; crossed pairs fail as they must: {counts['crossed']:,}; ", end="")
    print(f"{counts['edits'] / total:.2f} evidence edits each")
    print(f"1,000,000 families on one core: {1e6 / (total / making) / 3600:.1f} hours")
    return total / making, counts["gates"] == counts["crossed"] == total and peak() - half < FLAT


def format_quartiles(quartiles: Quartiles | None) -> str:
    return "-" if quartiles is None else "{:.0f} [{:.0f}-{:.0f}]".format(*quartiles)


def answer_type(answer: str) -> str:
    if answer.lower() in ("yes", "no"):
        return "yes/no"
    if re.search(r"\b(1[0-9]|20)\d\d\b", answer):
        return "date"
    return "number" if answer[:1].isdigit() else "entity"


def describe(name: str, instances: Iterable[Instance]) -> list[list[str]]:
    listed = list(instances)
    passages = sorted(len(instance.evidence) for instance in listed)[len(listed) // 2]
    rows = []
    for summary in characterize_benchmarks(listed):
        kinds = ", ".join(f"{kind} {100 * count / summary.n:.0f}%" for kind, count in summary.kinds.items())
        hops = ", ".join(f"{hop}: {100 * count / summary.n:.0f}%" for hop, count in summary.hops.items())
        sorts = Counter(answer_type(instance.reference_answer or "") for instance in listed)
        answers = ", ".join(f"{sort} {100 * count / summary.n:.0f}%" for sort, count in sorts.most_common())
        density = format_quartiles(summary.support_density)
        rows.append([name, str(passages), format_quartiles(summary.context_words), density, hops, answers, kinds])
    return rows


def compare() -> None:
    """Print the world's profiles beside the real slices."""
    rows = []
    for name in BENCHMARK_PROFILES:
        rows += describe(f"world {name}", (item.instance for item in islice(make_world_items(name, SEED), 400)))
    folder = Path(os.environ.get("ECLOSE_DATA", "../shared/data"))
    for name, file in SLICES.items():
        if (folder / file).exists():
            rows += describe(name, unwrap_records(scan_instances(folder / file)))
    heads = ["set", "passages", "words", "support %", "hops", "answers", "question shapes"]
    print_table("Generated and real questions, median [25th-75th percentile]", heads, rows)


def main() -> int:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else FAMILIES
    compare()
    rate, holds = stream(total)
    goal = f"all of {total} pass every gate and crossing, memory flat"
    return print_result(
        name="world families",
        value=round(rate, 1),
        unit="families/s",
        goal=goal,
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
