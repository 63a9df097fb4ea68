"""Coverage of the rates corrected by a hundred labels, over repeated samples as ``eclose label`` draws them.

2,000 responses of the world, whose truth is known, are judged by three judges: one that errs in a twentieth of its
labels, one that misses two fifths of the unsound steps, and one that is never wrong. Each time another hundred are
drawn by what the judge said, a person who is never wrong labels them, and the corrected interval of every rate is held
against the true rate of the 2,000. It promises 95 %; with 400 repetitions, chance alone leaves it above 92 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.judging.settings import JudgeSettings
from eclose.judging.validation_file import build_validation
from eclose.metrics.judge_against_people import JudgedLabel, encode_rate_hits
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.verdict import Verdict
from eclose_annotate.labelling.sample import draw_label_sample
from eclose_world.demo import make_demo_cases
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eclose.values.verdict import SettledVerdict

GOAL = 0.92
LABELS = [field.name for field in fields(Verdict)]


def exact(verdict: Verdict, _rng: Random) -> Verdict:
    return verdict


def careless(verdict: Verdict, rng: Random) -> Verdict:
    labels = {name: getattr(verdict, name) for name in LABELS}
    return Verdict(**{name: not labels[name] if rng.random() < 0.05 else labels[name] for name in LABELS})


def lenient(verdict: Verdict, rng: Random) -> Verdict:
    labels = {name: getattr(verdict, name) for name in LABELS}
    sound = True if rng.random() < 0.4 else verdict.locally_sound
    return Verdict(**{**labels, "locally_sound": sound})


JUDGES: Mapping[str, Callable[[Verdict, Random], Verdict]] = {"exact": exact, "careless": careless, "lenient": lenient}


def judgment(response_id: str, verdict: Verdict) -> Judgment:
    """Build a judgment with these labels and a single step."""
    return Judgment(
        response_id,
        "simulated",
        (StepJudgment(True, verdict.locally_sound),),
        verdict.aligned,
        verdict.closed,
        verdict.complete,
        verdict.correct,
    )


def measure_coverage(
    truths: Sequence[SettledVerdict], judgments: Sequence[Judgment], n: int, seed: int
) -> dict[JudgedLabel, tuple[bool, float]]:
    """Return for every rate whether the corrected interval covers the truth, and how wide it is."""
    sample = draw_label_sample((truth.response_id for truth in truths), judgments, n=n, seed=seed)
    chosen = set(sample.chosen)
    labelled = [truth for truth in truths if truth.response_id in chosen]
    settings = JudgeSettings().identity
    rng = np.random.default_rng(seed)
    validation = build_validation(judgments, labelled, settings=settings, rng=rng, strata=sample.strata, resamples=100)
    coverage = {}
    for label, rate in validation.corrected.items():
        codes = encode_rate_hits(label, [truth.verdict for truth in truths])
        true = float(codes[codes >= 0].mean())
        if rate.interval is not None:
            inside = rate.interval.low <= true <= rate.interval.high
            coverage[label] = (inside, rate.interval.high - rate.interval.low)
    return coverage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--responses", type=int, default=2_000)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=100, help="repetitions of the sample (the record has 400)")
    options = parser.parse_args()
    everything = chain.from_iterable(make_demo_cases((options.responses + 1) // 2))
    truths = [case.truth for case in everything if None not in (getattr(case.truth.verdict, name) for name in LABELS)]
    start, worst = time.perf_counter(), 1.0
    print(
        f"{len(truths):,} responses with all labels known, {options.labels} labelled, {options.repetitions} repetitions"
    )
    for name, judge in JUDGES.items():
        rng = Random(name)
        judgments = [judgment(truth.response_id, judge(truth.verdict, rng)) for truth in truths]
        rounds = [measure_coverage(truths, judgments, options.labels, seed) for seed in range(options.repetitions)]
        for label in JudgedLabel:
            outcomes = [coverage[label] for coverage in rounds if label in coverage]
            share = sum(inside for inside, _ in outcomes) / len(outcomes)
            width = sum(width for _, width in outcomes) / len(outcomes)
            worst = min(worst, share)
            print(f"{name:9} {label:4} holds in {100 * share:5.1f} %, width {100 * width:4.1f} points")
    print(f"{time.perf_counter() - start:.0f} s")
    return print_result(
        name="corrected intervals of a labelled sample that hold the truth, at worst",
        value=round(100 * worst, 1),
        unit=f"% of {options.repetitions} repetitions, over every rate of three judges",
        goal=f">= {100 * GOAL:.0f}",
        holds=worst >= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
