"""The detector study in the world: which detector sees which failure, when the model behind it is nearly exact.

Responses with planted failures are scored by the RAGAS-style, the VeriScore-style and the alignment detector over HTTP;
the world's server answers from the oracle and errs at a known rate. Closure is the oracle's label with the same errors,
in place of T5. "Steps alone" is the RAGAS-style score without the statement that is made of the submitted answer.

The pattern of the paper (section 3.3): what supports single steps is blind to the gap, alignment sees path deviation,
closure sees decoupled and incomplete answers. One difference is known and is part of the result: the RAGAS- and
VeriScore-style scores are not near 0.5 on planted path deviations. They also check the statement "the answer to the
question is X", which the passages do not support after a deviation, and the world's model checks it almost without
error; the paper's model found few of these. Steps alone show the blindness.

    python studies/campaigns/detect_study.py
    python studies/campaigns/detect_study.py --questions 20 --resamples 50     a quick look
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

import eclose
from eclose.detectors.scores import DetectorKind, DetectorScore, score_file_name
from eclose.detectors.study_statistics import StudySettings
from eclose.files.jsonl import read_records, write_records
from eclose.report.detectors.write import write_detector_report
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.detector import ANSWER_STATEMENT, CONFIDENCE
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from studies.perf.result import print_result

if TYPE_CHECKING:
    from eclose.values.instance import Instance
    from eclose.values.judgment import Judgment
    from eclose.values.response import Response

CHAT_DETECTORS = ("ragas", "veriscore", "alignment")
STEPS_ALONE, ORACLE = "steps-alone", "oracle"
BLIND = 0.10
"""Largest distance of an AUROC from 0.5 that counts as blind."""
SEES = 0.85
"""Least AUROC of a detector on the failure of its own dependency."""


def plant_responses(profile: str, questions: int, seed: int) -> list[tuple[Instance, Response]]:
    """Return reliable, gap and unsound responses to the same questions: two reliable ones and each failure once."""
    reliable = [FailurePlan()] * 2
    unsound = FAILURE_PLANS[:2]
    gap = [plan for plan in FAILURE_PLANS if plan.local is None]
    planted = []
    for item in islice(make_world_items(profile, seed), questions):
        for number, plan in enumerate((*reliable, *gap, *unsound)):
            broken = break_response(item, plan, f"{seed}/{number}")
            if broken is not None:
                response = replace(broken.response, id=f"{item.instance.id}/{number}")
                planted.append((item.instance, response))
    return planted


def write_run(folder: Path, planted: list[tuple[Instance, Response]]) -> list[Judgment]:
    """Write questions, responses and the oracle's judgments."""
    judgments = [judge_by_oracle(instance, response) for instance, response in planted]
    write_records(folder / "instances.jsonl", {instance.id: instance for instance, _ in planted}.values())
    write_records(folder / "responses.jsonl", [response for _, response in planted])
    write_records(folder / "judgments.jsonl", judgments)
    return judgments


def score_steps_alone(folder: Path) -> None:
    """Write the RAGAS-style scores without the statement that is made of the submitted answer."""
    scores = []
    for record in read_records(folder / score_file_name(DetectorKind.STATEMENT_SUPPORT), DetectorScore):
        statements = [
            statement
            for statement in record.details.get("statements", ())
            if not ANSWER_STATEMENT.fullmatch(statement["text"])
        ]
        if record.score is not None and statements:
            share = sum(statement["supported"] for statement in statements) / len(statements)
            scores.append(replace(record, model=STEPS_ALONE, score=share, details={}))
    write_records(folder / "scores-steps-alone.jsonl", scores)


def score_closure_by_oracle(folder: Path, judgments: list[Judgment], noise: float, seed: int) -> None:
    """Write the oracle's label of closure as a probability, wrong at the rate ``noise``."""
    rng = Random(seed)
    scores = []
    for judgment in judgments:
        if judgment.closed is None:
            continue
        likely = judgment.closed is not (rng.random() < noise)
        score = CONFIDENCE if likely else 1 - CONFIDENCE
        scores.append(
            DetectorScore(response_id=judgment.response_id, detector=DetectorKind.CLOSURE, model=ORACLE, score=score)
        )
    write_records(folder / score_file_name(DetectorKind.CLOSURE), scores)


def run_study(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Plant, judge, score and study; return the content of ``detectors.json``."""
    judgments = write_run(folder, plant_responses(arguments.profile, arguments.questions, arguments.seed))
    print(dict(sorted(Counter(str(judgment.verdict.trace_group) for judgment in judgments).items())), flush=True)
    with ModelServerThread(build_world_handlers(detector_noise=arguments.noise, seed=arguments.seed)) as server:
        for detector in CHAT_DETECTORS:
            free = eclose.CallSettings(unpriced=True)
            result = eclose.detect(folder, detector=detector, model=server.base_url, calls=free)
            print(f"{detector}: {result.manifest.counts}, unscored {result.manifest.calls['unscored']}", flush=True)
    score_steps_alone(folder)
    score_closure_by_oracle(folder, judgments, arguments.noise, arguments.seed)
    settings = StudySettings(resamples=arguments.resamples)
    files = write_detector_report(folder, settings=settings)
    print(files["detectors.md"].read_text("utf-8"))
    data: dict[str, Any] = json.loads(files["detectors.json"].read_text())
    return data


def read_aurocs(data: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the AUROC of each detector and failure group."""
    return {
        STEPS_ALONE if entry["model"] == STEPS_ALONE else entry["detector"]: {
            group: values["auroc"]["value"] for group, values in entry["groups"].items() if "auroc" in values
        }
        for entry in data["detectors"]
    }


def check_pattern(aurocs: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Return whether each part of the pattern holds."""
    steps, alignment, closure = (aurocs[name] for name in (STEPS_ALONE, "alignment", "closure"))
    classes = ("path_deviation", "incomplete_reasoning", "answer_decoupling")
    return {
        "steps alone are blind to every class of the gap": all(abs(steps[name] - 0.5) <= BLIND for name in classes),
        "steps alone see unsound steps": steps["locally_unsound"] >= SEES,
        "alignment sees path deviation": alignment["path_deviation"] >= SEES,
        "alignment is blind to decoupled answers": abs(alignment["answer_decoupling"] - 0.5) <= BLIND,
        "closure sees decoupled answers": closure["answer_decoupling"] >= SEES,
        "closure sees incomplete reasoning": closure["incomplete_reasoning"] >= SEES,
        # Not the paper's figure: see the head of this file.
        "the statement of the answer gives path deviation away": aurocs["ragas"]["path_deviation"] > 0.5 + BLIND,
    }


def main() -> int:
    """Run the study and print tables, checks and the result line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="short-hard")
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=19)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        aurocs = read_aurocs(run_study(Path(folder), arguments))
    checks = check_pattern(aurocs)
    for name, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {name}")
    return print_result(
        name="detector study in the world",
        value=round(aurocs[STEPS_ALONE]["path_deviation"], 3),
        unit="AUROC of steps alone on path deviation",
        goal=f"the whole pattern: blind within {BLIND} of 0.5, seeing from {SEES}, given away above {0.5 + BLIND}",
        holds=all(checks.values()),
        auroc=aurocs,
        noise=arguments.noise,
        questions=arguments.questions,
    )


if __name__ == "__main__":
    sys.exit(main())
