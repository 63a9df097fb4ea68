"""Verifiers of dependencies, judged where simple features say nothing: in the harder world and on real text.

A linear verifier is trained on families of the world, calibrated on labelled responses to other questions, and
evaluated on responses that neither has seen, beside word overlap, the number of steps and the conclusion word. The same
verifier without the features of form alone follows it. Every set has questions of its own. Thresholds spare 95 % of the
reliable responses: those of the calibration, or of the other folds of questions (cross-fitted).

    python studies/campaigns/detect_verifier.py           # harder world and real text to choose models on
    python studies/campaigns/detect_verifier.py --test     # the others: once, when everything is frozen
    python studies/campaigns/detect_verifier.py --test --write sets   # the same as folders, for another detector
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.detectors.calibrate import CalibrationSettings, calibrate_detectors
from eclose.detectors.evaluate import evaluate_detector
from eclose.detectors.joined import StudyInputs
from eclose.detectors.study_statistics import StudyGroup, StudySettings
from eclose.files.jsonl import write_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE, VERDICTS_FILE
from eclose.readers.response_tasks import ResponseTask
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict
from eclose_train.verifier.fit import train_linear_verifier
from eclose_train.verifier.rows import build_verifier_rows
from eclose_train.verifier.score import score_tasks
from eclose_world.faulty.matched_responses import make_matched_responses
from eclose_world.make.families import make_world_families
from studies.campaigns.detection_claims import GOALS, list_verifier_claims, print_claims
from studies.campaigns.real_gaps.records import read_real_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.scores import DetectorScore
    from eclose.detectors.study_statistics import DetectorResult
    from eclose.stats.intervals import Estimate
    from eclose_train.verifier.linear import LinearVerifier

TRAINING_SEED, CALIBRATION_SEED, DEVELOPMENT_SEED, TEST_SEED = 7, 21, 31, 23
GROUPS = (
    StudyGroup.GAP,
    StudyGroup.PATH_DEVIATION,
    StudyGroup.INCOMPLETE_REASONING,
    StudyGroup.ANSWER_DECOUPLING,
    StudyGroup.LOCALLY_UNSOUND,
)


@dataclass(frozen=True)
class LabelledSet:
    """Questions, and responses with their labels."""

    name: str
    instances: dict[str, Instance]
    responses: list[Response]
    verdicts: list[SettledVerdict]

    def split(self) -> tuple[LabelledSet, LabelledSet]:
        """Return two sets of the same size in questions, every second question in each."""
        first, second = (self._restrict(dict(islice(self.instances.items(), start, None, 2))) for start in (0, 1))
        return first, second

    def _restrict(self, instances: dict[str, Instance]) -> LabelledSet:
        return LabelledSet(
            self.name,
            instances,
            [response for response in self.responses if response.instance_id in instances],
            [verdict for verdict in self.verdicts if verdict.instance_id in instances],
        )

    def write(self, folder: Path) -> None:
        """Write the folder of a run without scores, with the labels in a file of verdicts."""
        folder.mkdir(parents=True, exist_ok=True)
        write_records(folder / INSTANCES_FILE, self.instances.values())
        write_records(folder / RESPONSES_FILE, self.responses)
        write_records(folder / VERDICTS_FILE, self.verdicts)


def make_matched_set(profile: str, seed: int, groups: int) -> LabelledSet:
    """Make responses of the harder world with the labels they were made for."""
    parts = list(make_matched_responses(profile, seed, groups))
    instances = [part.item.instance for part in parts]
    broken = [(part.item.instance, response) for part in parts for response in part.responses]
    return LabelledSet(
        profile,
        {instance.id: instance for instance in instances},
        [response.response for _, response in broken],
        [
            SettledVerdict(response.response.id, instance.id, response.verdict, instance.benchmark)
            for instance, response in broken
        ],
    )


def read_real_set(half: str) -> LabelledSet:
    """Read real traces of a half."""
    data = read_real_gaps(half)
    return LabelledSet(f"real text ({half})", {item.id: item for item in data.instances}, data.responses, data.verdicts)


def score_set(verifier: LinearVerifier, labelled: LabelledSet) -> list[DetectorScore]:
    """Score every response; one without an answer or a trace has a reason instead."""
    tasks = [
        ResponseTask(response.id, labelled.instances[response.instance_id], response) for response in labelled.responses
    ]
    return score_tasks(tasks, verifier)


def evaluate_set(
    verifier: LinearVerifier, calibration_set: LabelledSet, test_set: LabelledSet, heads: Sequence[str]
) -> DetectorEvaluation:
    """Calibrate on one set and evaluate on another."""
    (calibration,) = calibrate_detectors(
        StudyInputs(score_set(verifier, calibration_set), calibration_set.responses, calibration_set.verdicts),
        CalibrationSettings(heads=tuple(heads)),
    )
    return evaluate_detector(
        calibration,
        StudyInputs(score_set(verifier, test_set), test_set.responses, test_set.verdicts),
        test_set.instances,
        StudySettings(resamples=1_000),
    )


def format_evaluation(name: str, evaluation: DetectorEvaluation) -> str:
    """Format recall by group at the calibrated threshold, and AUROC and R@95 beside the controls."""
    rates = {group: evaluation.flagged[group] for group in (StudyGroup.RELIABLE, *GROUPS)}
    cells = [f"{group} {_percent(rate)}" for group, rate in rates.items()]
    lines = [f"\n## {name}", f"n = {evaluation.responses}; flagged at the calibrated threshold: {'; '.join(cells)}"]
    verifier = next(row for row in evaluation.study.results if row.detector.model == evaluation.calibration.model)
    lines.append(
        f"cross-fitted over questions: gap {_percent(verifier.held_out_recall)};"
        f" reliable {_percent(verifier.held_out_false_positive_rate)}\n"
    )
    return "\n".join([*lines, *format_results(evaluation.study.results)])


def format_results(results: Sequence[DetectorResult]) -> list[str]:
    """Return the lines of a table: AUROC and R@95 of the gap, AUROC of its classes and of unsound responses."""
    header = [
        "| detector | gap AUROC | R@95 | path | incomplete | decoupling | unsound |",
        "|---|---|---|---|---|---|---|",
    ]
    return [*header, *map(_format_result, results)]


def _format_result(result: DetectorResult) -> str:
    gap = result.separations[StudyGroup.GAP]
    classes = [_share(result.separations[group].auroc) for group in GROUPS[1:]]
    name = result.detector.model
    return f"| {name} | {_share(gap.auroc)} | {_percent(gap.recall)} | {' | '.join(classes)} |"


def _share(estimate: Estimate) -> str:
    interval = estimate.interval
    bounds = "" if interval is None else f" [{interval.low:.3f}, {interval.high:.3f}]"
    return "-" if estimate.value is None else f"{estimate.value:.3f}{bounds}"


def _percent(estimate: Estimate) -> str:
    interval = estimate.interval
    bounds = "" if interval is None else f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    return "-" if estimate.value is None else f"{100 * estimate.value:.1f}{bounds}"


def make_sets(groups: int, *, test: bool) -> list[tuple[LabelledSet, LabelledSet]]:
    """Return pairs of sets, one to calibrate on and one to evaluate."""
    seed = TEST_SEED if test else DEVELOPMENT_SEED
    pairs = [
        (make_matched_set(profile, CALIBRATION_SEED, groups), make_matched_set(profile, seed, groups))
        for profile in GOALS
    ]
    if "ECLOSE_DATA" in os.environ:
        real = read_real_set("choose")
        pairs.append((real, read_real_set("test")) if test else real.split())
    return pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, calibrate and evaluate; print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=250, help="training families of each profile")
    parser.add_argument("--groups", type=int, default=600, help="questions of each set of the harder world")
    parser.add_argument("--test", action="store_true", help="use the questions that no choice was made on")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the sets for another detector, and stop")
    parser.add_argument("--heads", nargs="+", default=["alignment", "closure"], help="heads to combine")
    options = parser.parse_args(arguments)
    pairs = make_sets(options.groups, test=options.test)
    if options.write is not None:
        for _, test_set in pairs:
            test_set.write(options.write / test_set.name.partition(" (")[0].replace(" ", "-"))
        return 0
    families = chain.from_iterable(
        islice(make_world_families(profile, TRAINING_SEED), options.families) for profile in GOALS
    )
    rows = build_verifier_rows(families)
    verifiers = {
        "all features": train_linear_verifier(rows),
        "without shortcuts": train_linear_verifier(rows, shortcuts=False),
    }
    sections: list[str] = []
    for calibration_set, test_set in pairs:
        for features, verifier in verifiers.items():
            evaluation = evaluate_set(verifier, calibration_set, test_set, options.heads)
            sections.append(format_evaluation(f"{test_set.name}, {features}", evaluation))
            print(sections[-1], flush=True)
    return print_claims(list_verifier_claims("\n".join(sections)))


if __name__ == "__main__":
    sys.exit(main())
