"""A verifier of hidden states beside the linear one: both trained on the same families, in the harder world.

A hidden verifier would be the default only if it found at least five points more of the path deviations, over seeds.
Every seed has training families of its own; the threshold is calibrated on questions that no verifier has seen, and
the rates are those on others. Real traces of the half to choose models on are printed where ``ECLOSE_DATA`` is set.

    python campaigns/detect_hidden.py              # about half an hour on a core
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from campaigns.detect_verifier import (
    CALIBRATION_SEED,
    DEVELOPMENT_SEED,
    GOALS,
    evaluate_set,
    format_evaluation,
    make_matched_set,
    read_real_set,
)
from perf.result import print_result
from perf.tree_cost import packaged_weights

from eclose.detection.study_statistics import StudyGroup
from eclose.detection.verifier.hidden import train_hidden_verifier
from eclose.detection.verifier.hidden_states import find_hidden_model
from eclose.detection.verifier.rows import build_verifier_rows
from eclose.detection.verifier.training import train_linear_verifier
from eclose.world.make.families import make_world_families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.verifier.heads import Verifier

HEADS = ("alignment", "closure")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train both kinds for every seed and print the recall of path deviations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=24, help="training families of each profile")
    parser.add_argument("--groups", type=int, default=100, help="questions of each set of the harder world")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9], help="seeds of the training families")
    parser.add_argument("--penalty", type=float, default=1_000.0, help="L2 penalty of the heads on hidden states")
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sets = [
        (make_matched_set(profile, CALIBRATION_SEED, options.groups),
         make_matched_set(profile, DEVELOPMENT_SEED, options.groups))
        for profile in GOALS
    ]  # fmt: skip
    if "ECLOSE_DATA" in os.environ:
        sets.append(read_real_set("choose").split())
    ref = find_hidden_model(packaged_weights())
    recalls: dict[str, list[float]] = {"hidden": [], "linear": []}
    for seed in options.seeds:
        families = chain.from_iterable(islice(make_world_families(name, seed), options.families) for name in GOALS)
        rows = [row for row in build_verifier_rows(families) if row.head.value in HEADS]
        verifiers: dict[str, Verifier] = {
            "linear": train_linear_verifier(rows),
            "hidden": train_hidden_verifier(rows, ref, penalty=options.penalty),
        }
        for calibration_set, test_set in sets:
            for kind, verifier in verifiers.items():
                evaluation = evaluate_set(verifier, calibration_set, test_set, HEADS)
                print(format_evaluation(f"{test_set.name}, seed {seed}, {kind}", evaluation), flush=True)
                if test_set.name in GOALS:
                    recalls[kind].append(100 * (evaluation.flagged[StudyGroup.PATH_DEVIATION].value or 0.0))
    difference = fmean(recalls["hidden"]) - fmean(recalls["linear"])
    return print_result(
        name="path deviations found by hidden states, over the linear verifier",
        value=round(difference, 1),
        unit="points, mean over seeds and profiles",
        goal=">= 5 for a hidden default",
        holds=difference >= 5,
        recalls={kind: [round(value, 1) for value in values] for kind, values in recalls.items()},
    )


if __name__ == "__main__":
    sys.exit(main())
