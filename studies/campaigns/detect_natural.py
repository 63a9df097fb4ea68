"""Verifiers on natural failures: what they find of a generator's own mistakes, and what choosing by them gains.

Needs the folders that ``studies/campaigns/natural_failures.py`` writes, one for each seed of the generator. Half of the
questions calibrate the verifier, the other half is reported: separation beside word overlap, the choice among k
responses, and the curves of abstention and of a cascade. On the gap and some reliable responses of the first folder,
the heads of the verifier stand beside a model that is asked: the probability of Yes by SmolLM2-135M.

    python studies/campaigns/detect_natural.py runs/natural-42 runs/natural-43 runs/natural-44
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.chat_template import tokenize_prompt
from eclose.calls.local.weights import load_causal_model, load_tokenizer
from eclose.calls.model import Decoding, Request
from eclose.detectors.bands import rank_records
from eclose.detectors.joined import StudyInputs, study_detectors
from eclose.detectors.overlap import score_controls
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.select_answer import ChoiceSettings, ChoiceStrategy, choose_responses, evaluate_choices
from eclose.detectors.settings import ChatDetectorSettings
from eclose.detectors.study_statistics import StudyGroup, StudySettings, list_study_groups
from eclose.detectors.yes_probability import build_alignment_request
from eclose.files.jsonl import read_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.prompts.locked_texts import PromptMessage
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict
from eclose_train.verifier.fit import train_linear_verifier
from eclose_train.verifier.rows import build_verifier_rows
from eclose_world.make.families import make_world_families
from studies.campaigns.detect_verifier import LabelledSet, evaluate_set, format_evaluation, format_results, score_set
from studies.campaigns.detection_claims import list_natural_claims, print_claims
from studies.campaigns.natural_failures import VERDICTS_FILE, name_group
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.detectors.evaluate import DetectorEvaluation

TRAINING_SEED = 8
"""World seed of the verifier's families; the generator learned from families of another seed."""
PROFILES = ("short-easy", "short-hard")
SIZES = (4, 8)
"""Numbers of responses to choose from."""


class ChoiceRow(NamedTuple):
    """Reliable and correct shares of one strategy, in percent."""

    run: str
    size: int
    strategy: ChoiceStrategy
    reliable: float
    correct: float


def read_natural_run(folder: Path) -> LabelledSet:
    """Read questions, responses and the oracle's verdicts of a run."""
    instances = {item.id: item for item in read_records(folder / INSTANCES_FILE, Instance)}
    responses = list(read_records(folder / RESPONSES_FILE, Response))
    return LabelledSet(folder.name, instances, responses, list(read_records(folder / VERDICTS_FILE, SettledVerdict)))


class YesProbability:
    """Probability that a local chat model begins its reply with Yes."""

    def __init__(self, weights: str) -> None:
        self._model: Any = load_causal_model(weights, dtype="float32").eval()
        self._tokenizer: Any = load_tokenizer(weights)
        vocabulary = range(len(self._tokenizer))
        self._yes = [token for token in vocabulary if self._tokenizer.decode([token]).strip().casefold() == "yes"]

    @torch.inference_mode()
    def score(self, request: Request) -> float:
        """Return the probability of all spellings of Yes as the first token."""
        # Log-probabilities are read from the model itself, so they are not requested.
        plain = replace(request, decoding=Decoding(max_tokens=1, temperature=0.0))
        ids = torch.tensor([tokenize_prompt(self._tokenizer, plain)])
        logits = self._model(input_ids=ids, logits_to_keep=1).logits[0, -1]
        return min(1.0, float(torch.softmax(logits, dim=-1)[self._yes].sum()))


def build_closure_request(instance: Instance, response: Response) -> Request:
    """Return the request whether a trace establishes the answer."""
    steps = "\n".join(response.trace.texts)
    text = (
        f"Question: {instance.question}\n\nReasoning:\n{steps}\n\nSubmitted answer: {response.answer}\n\nDoes the"
        " reasoning alone establish the submitted answer? Answer with one word, Yes or No."
    )
    return Request((PromptMessage(role="user", content=text),), Decoding(max_tokens=1, temperature=0.0))


def pick_responses_to_ask_about(labelled: LabelledSet, reliable: int) -> set[str]:
    """Return the ids of all responses in the gap and of some reliable ones, drawn at random.

    AUROC compares pairs of a failing and a reliable response, so it does not depend on the shares of the two.
    """
    by_group: dict[StudyGroup, list[str]] = {StudyGroup.GAP: [], StudyGroup.RELIABLE: []}
    for row in labelled.verdicts:
        for group in set(list_study_groups(row.verdict)) & set(by_group):
            by_group[group].append(row.response_id)
    candidates = by_group[StudyGroup.RELIABLE]
    drawn = Random(0).sample(candidates, min(reliable, len(candidates)))
    return {*by_group[StudyGroup.GAP], *drawn}


def compare_with_asking(labelled: LabelledSet, scores: Sequence[DetectorScore], ranked: Sequence[DetectorScore]) -> str:
    """Format the separation by a verifier, its heads, a model that is asked, and the controls."""
    scorer, settings = YesProbability(packaged_weights()), ChatDetectorSettings(detector=DetectorKind.ALIGNMENT)
    records = [*ranked, *score_controls(labelled.instances, labelled.responses)]
    for head in ("alignment", "closure"):
        records += [
            replace(row, model=f"{head} head", score=row.details[head]) for row in scores if row.score is not None
        ]
    for response in labelled.responses:
        if not response.trace.texts or not response.answer:
            continue
        instance = labelled.instances[response.instance_id]
        for kind, request in (
            (DetectorKind.ALIGNMENT, build_alignment_request(instance, response, settings)),
            (DetectorKind.CLOSURE, build_closure_request(instance, response)),
        ):
            score = scorer.score(request)
            records.append(DetectorScore(response_id=response.id, detector=kind, model=f"P(Yes), {kind}", score=score))
    study = study_detectors(StudyInputs(records, labelled.responses, labelled.verdicts), StudySettings(resamples=1_000))
    groups = {group.value: count for group, count in study.groups.items() if count}
    title = f"\n## beside a model that is asked: {len(labelled.responses)} responses, {groups}\n"
    return "\n".join([title, *format_results(study.results)])


def choose_of_run(labelled: LabelledSet, ranks: Mapping[str, float | None], seed: int) -> list[ChoiceRow]:
    """Return every strategy for every size; the responses to choose from are drawn by the seed."""
    by_question: dict[str, list[Response]] = {}
    for response in labelled.responses:
        by_question.setdefault(response.instance_id, []).append(response)
    rows = []
    for size in SIZES:
        drawn = [
            response
            for instance_id, group in by_question.items()
            for response in Random(f"{seed} {instance_id}").sample(group, min(size, len(group)))
        ]
        for strategy in ChoiceStrategy:
            choices = choose_responses(drawn, ranks, ChoiceSettings(strategy=strategy), instances=labelled.instances)
            quality = evaluate_choices(choices, labelled.verdicts)
            # A question without an answer counts as neither reliable nor correct.
            reliable, correct = (100 * count / quality.questions for count in (quality.reliable, quality.correct))
            rows.append(ChoiceRow(labelled.name, size, strategy, reliable, correct))
    return rows


def format_curves(evaluation: DetectorEvaluation) -> str:
    """Format abstention at several coverages, and judge calls at several recalls."""
    lines = ["| coverage | reliable, % | correct, % |", "|---|---|---|"]
    for least in (1.0, 0.8, 0.6, 0.4, 0.2):
        points = [point for point in evaluation.abstention if point.coverage >= least]
        point = min(points, key=lambda row: row.coverage)
        correct = "-" if point.correct is None else f"{100 * point.correct:.1f}"
        lines.append(f"| {100 * point.coverage:.0f} % | {100 * (point.reliable or 0):.1f} | {correct} |")
    lines += ["", "| recall of the gap | judged by the verifier | by word overlap | by chance |", "|---|---|---|---|"]
    for row in evaluation.judge_calls:
        judged = {identity.model: count for identity, count in row.judged.items()}
        verifier, overlap = judged[evaluation.calibration.model], judged["word overlap"]
        lines.append(f"| {100 * row.recall:.0f} % | {verifier:,} | {overlap:,} | {row.by_chance:,} |")
    return "\n".join([f"of {evaluation.responses:,} decided responses", "", *lines])


def format_choices(rows: Sequence[ChoiceRow]) -> str:
    """Format the shares of every strategy, one line for each run and size."""
    lines = [f"| run | k | {' | '.join(ChoiceStrategy)} |", "|---" * (2 + len(ChoiceStrategy)) + "|"]
    for run, size in dict.fromkeys((row.run, row.size) for row in rows):
        cells = [f"{row.reliable:.1f} ({row.correct:.1f})" for row in rows if (row.run, row.size) == (run, size)]
        lines.append(f"| {run} | {size} | {' | '.join(cells)} |")
    return "\n".join(["reliable, % (correct, %) of all questions", "", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate a linear verifier on every run; no choice may be worse than the majority or a random one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of natural responses; runs/natural-* by default")
    parser.add_argument("--families", type=int, default=250, help="training families of each profile")
    parser.add_argument(
        "--asked", type=int, default=60, help="reliable responses of the first run to ask SmolLM2-135M about"
    )
    parser.add_argument("--heads", nargs="+", default=["alignment", "closure"], help="heads to combine")
    options = parser.parse_args(arguments)
    folders = options.runs or sorted(Path("runs").glob("natural-*"))
    if not folders:
        print("There are no natural responses: run natural_failures.py --out runs/natural-42 first.")
        return 1
    families = chain.from_iterable(
        islice(make_world_families(profile, TRAINING_SEED), options.families) for profile in PROFILES
    )
    verifier = train_linear_verifier(build_verifier_rows(families))
    choices: list[ChoiceRow] = []
    for number, folder in enumerate(folders):
        labelled = read_natural_run(folder)
        print(f"\n# {folder.name}: {dict(Counter(name_group(row) for row in labelled.verdicts))}")
        calibration_set, test_set = labelled.split()
        evaluation = evaluate_set(verifier, calibration_set, test_set, options.heads)
        print(format_evaluation("separation", evaluation), "\n")
        print(format_curves(evaluation), "\n", flush=True)
        scores = score_set(verifier, test_set)
        records = rank_records(evaluation.calibration, scores)
        if number == 0 and options.asked:
            ids = pick_responses_to_ask_about(test_set, options.asked)
            asked_set = replace(
                test_set,
                responses=[response for response in test_set.responses if response.id in ids],
                verdicts=[verdict for verdict in test_set.verdicts if verdict.response_id in ids],
            )
            parts = [[row for row in rows if row.response_id in ids] for rows in (scores, records.values())]
            print(compare_with_asking(asked_set, *parts), "\n", flush=True)
        ranks = {response_id: record.score for response_id, record in records.items()}
        choices += choose_of_run(test_set, ranks, number)
    table = format_choices(choices)
    print(table)
    return print_claims(list_natural_claims(table))


if __name__ == "__main__":
    sys.exit(main())
