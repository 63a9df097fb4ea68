"""Time to decide which families can be trained on, against tokenizing every path of each family.

The baseline renders every path any objective may take, as training itself does. Both read the same file. Processor
time is measured, so that a busy machine does not mislead. The second start of a run reads what the first wrote down.

    python studies/perf/admission.py
"""

from __future__ import annotations

import sys
import tempfile
from itertools import islice
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.weights import load_tokenizer
from eclose.files.jsonl import write_records
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.training import admission
from eclose_world.make.families import make_world_families
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILIES = 150
GOAL = 10.0


def time_admission(work: Callable[[], admission.FamilyAdmission]) -> tuple[float, admission.FamilyAdmission]:
    start = process_time()
    result = work()
    return process_time() - start, result


def measure_speedup(profile: str, folder: Path) -> float:
    """Return how many times faster a profile's families are admitted, and print the milliseconds of each."""
    path, record = folder / f"{profile}.jsonl", folder / f"{profile}.admission.json"
    write_records(path, islice(make_world_families(profile, 7), FAMILIES))
    tokenizer = load_tokenizer(packaged_weights())
    ours, quick = time_admission(lambda: admission.admit_families(path, TokenPathRenderer(tokenizer), record=record))
    reread_seconds, reread = time_admission(
        lambda: admission.admit_families(path, TokenPathRenderer(tokenizer), record=record)
    )
    estimate = admission._LengthEstimate.surely_fits
    admission._LengthEstimate.surely_fits = lambda *_: False  # type: ignore[method-assign]
    try:
        baseline, whole = time_admission(lambda: admission.admit_families(path, TokenPathRenderer(tokenizer)))
    finally:
        admission._LengthEstimate.surely_fits = estimate  # type: ignore[method-assign]
    if not quick.families.ids == reread.families.ids == whole.families.ids:
        sys.exit(f"{profile}: the decisions differ")
    milliseconds = [f"{1_000 * seconds / FAMILIES:.1f}" for seconds in (baseline, ours, reread_seconds)]
    print(
        f"{profile}: every path {milliseconds[0]} ms a family, now {milliseconds[1]}, "
        f"when started again {milliseconds[2]}",
        flush=True,
    )
    return baseline / ours


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        value = min(measure_speedup(profile, Path(folder)) for profile in ("2wiki", "hotpot", "musique"))
    holds = value >= GOAL
    return print_result(
        name="admission of families",
        value=round(value, 1),
        unit="x faster than rendering every path, at least",
        goal=f">= {GOAL:.0f}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
