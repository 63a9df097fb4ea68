"""Learning campaign: SmolLM2-135M on short families of the world, four objectives at equal updates, held-out families.

Trains an adapter for every objective and seed, then asks each, and the backbone, the switch test and for answers to
held-out inputs. Everything lies in a folder and is done once, so the run may be stopped and started again.

    python studies/campaigns/learning.py --out runs/learning --profile short-hard --seeds 42 43 44

On two cores a seed takes most of an hour; without arguments a small version runs in minutes, for the figure alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import set_seed

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.transformers_model import TransformersModel
from eclose.calls.local.weights import load_adapter, load_causal_model, load_tokenizer
from eclose.calls.model import Decoding
from eclose.errors import UserError
from eclose.files.jsonl import ReadRecord
from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.family import ViewKind
from eclose.values.response import UNTUNED_METHOD
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.likelihood.exactness_check import choose_scoring_strategy
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.training.config import EClosureConfig
from eclose_train.training.select import CheckpointReply, build_checkpoint_questions
from eclose_train.training.switch_test import (
    SWITCH_SEED,
    FamilySwitchScores,
    SwitchContrast,
    pool_switch_rates,
    score_family_switches,
)
from eclose_train.training.trainer import EClosureTrainer
from eclose_world.make.families import make_world_families
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.values.family import Family

METHODS = ("sft", "cf_sft", "rm", "e_closure")
BACKBONE = "backbone"
HELD_OUT_START = 100_000
"""Held-out families come from far along the same endless series, so no question occurs twice."""
GOAL = 0.0
"""Least gain of E-Closure over SFT in the mean of the three switch rates, in points."""


@dataclass(frozen=True)
class Experiment:
    """Settings of an experiment."""

    out: Path
    profile: str
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    train: int
    held_out: int
    answered: int
    updates: int
    batch: int
    learning_rate: float
    model: str

    @property
    def training_families(self) -> list[Family]:
        """First families of the world."""
        return list(islice(make_world_families(self.profile, 1), self.train))

    @property
    def held_out_families(self) -> list[Family]:
        """Families that are not trained on."""
        return list(islice(make_world_families(self.profile, 1, start=HELD_OUT_START), self.held_out))

    def folder(self, method: str, seed: int | None) -> Path:
        """Return the folder of a method and seed."""
        return self.out / self.profile / (method if seed is None else f"{method}-{seed}")


def train(experiment: Experiment, method: str, seed: int) -> None:
    """Train an adapter, in bfloat16 throughout, which costs half as much on a CPU."""
    folder = experiment.folder(method, seed)
    if (folder / "minutes.json").is_file():
        return
    started = perf_counter()
    config = EClosureConfig(
        output_dir=str(folder),
        method=method,
        seed=seed,
        use_cpu=True,
        families_per_update=experiment.batch,
        max_steps=experiment.updates,
        learning_rate=experiment.learning_rate,
        warmup_steps=2,
        demonstrations=0,
        tokens_per_forward=2_048,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    set_seed(seed)
    model = get_peft_model(
        load_causal_model(experiment.model, dtype="bfloat16"),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        autocast_adapter_dtype=False,
    )
    trainer = EClosureTrainer(
        model, config, experiment.training_families, processing_class=load_tokenizer(experiment.model)
    )
    trainer.train()
    trainer.save_model(str(folder))
    (folder / "log.json").write_text(json.dumps(trainer.state.log_history))
    (folder / "minutes.json").write_text(json.dumps((perf_counter() - started) / 60))


def score_margins(experiment: Experiment, method: str, seed: int | None) -> None:
    """Score the margins of every held-out family."""
    path = experiment.folder(method, seed) / "switches.json"
    if path.is_file():
        return
    model = load_causal_model(experiment.model, dtype="bfloat16")
    if seed is not None:
        model = load_adapter(model, experiment.folder(method, seed))
    renderer = TokenPathRenderer(load_tokenizer(experiment.model), ResponsePrompt(0))
    choice = choose_scoring_strategy(model)
    records = [ReadRecord(family.id, value=family) for family in experiment.held_out_families]
    rows = score_family_switches(records, model, renderer, choice, tokens_per_forward=4_096)
    margins = {row.value.family_id: dict(row.value.margins) for row in rows if row.value is not None}
    _write(path, margins)


def ask_for_answers(experiment: Experiment, method: str, seed: int | None, demonstrations: int = 0) -> None:
    """Generate greedy answers to the three inputs of held-out families."""
    name = "answers.json" if not demonstrations else f"answers-{demonstrations}-shot.json"
    path = experiment.folder(method, seed) / name
    if path.is_file():
        return
    model = TransformersModel.load(experiment.model, dtype="bfloat16", device="cpu")
    if seed is not None:
        model = model.with_adapter(experiment.folder(method, seed))
    families = experiment.held_out_families[: experiment.answered]
    prompt = ResponsePrompt(demonstrations)
    questions = [
        question
        for family in families
        for question in build_checkpoint_questions(family, prompt, Decoding(max_tokens=192))
    ]
    replies = model.complete_all([question.request for question in questions])
    answers: list[dict[str, Any]] = []
    for question, reply in zip(questions, replies, strict=True):
        checked_reply = CheckpointReply.of(question, reply)
        answers.append(
            {
                "view": question.view,
                "correct": checked_reply.is_correct(question),
                "complete": checked_reply.answer is not None,
                "text": reply.text,
            }
        )
    _write(path, answers)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(value))
    partial.rename(path)


def systems(experiment: Experiment) -> list[tuple[str, int | None]]:
    """List the backbone, then every method with every seed, seed by seed, so that a part of the table is useful."""
    return [(BACKBONE, None), *((method, seed) for seed in experiment.seeds for method in experiment.methods)]


def run(experiment: Experiment) -> None:
    """Run everything that is not done yet."""
    for method, seed in systems(experiment):
        if seed is not None:
            train(experiment, method, seed)
        score_margins(experiment, method, seed)
        if experiment.answered:
            ask_for_answers(experiment, method, seed)
        print(f"{experiment.profile} {method} {seed or ''} done", file=sys.stderr, flush=True)
    if experiment.answered:
        ask_for_answers(experiment, BACKBONE, None, demonstrations=2)


def _switch_rows(experiment: Experiment, method: str, seed: int | None) -> list[FamilySwitchScores]:
    """Return the margins of a model as rows of the switch test; none where it is not finished."""
    path = experiment.folder(method, seed) / "switches.json"
    margins = json.loads(path.read_text()) if path.is_file() else {}
    trained = None if seed is None else method
    return [
        FamilySwitchScores(family, experiment.profile, "", {}, row, {}, f"{method} {seed}", "model", trained, seed)
        for family, row in margins.items()
    ]


def pool_seeds(experiment: Experiment) -> Mapping[str, Mapping[Edge, SwitchContrast]]:
    """Return the switch rates of each method over its seeds; empty until every seed of every method is finished."""
    rows = [row for method, seed in systems(experiment) for row in _switch_rows(experiment, method, seed)]
    try:
        pooled = pool_switch_rates(rows, rng=np.random.default_rng(SWITCH_SEED)).contrasts
    except UserError:
        return {}
    return {(BACKBONE if method == UNTUNED_METHOD else method): row for method, row in pooled.items()}


def _percent(hits: int, n: int, contrast: SwitchContrast | None) -> str:
    """Return a rate with the interval over families and seeds."""
    # The same families are tested with every seed, so the cases are not independent.
    interval = contrast.rate.interval if contrast else None
    ends = f" [{100 * interval.low:.0f}-{100 * interval.high:.0f}]" if interval else ""
    return f"{100 * hits / n:.1f}{ends}"


def rows(experiment: Experiment) -> Iterable[list[str]]:
    """Yield a row per method, its seeds pooled: O / CF / SW of each edge, accuracy, minutes."""
    pooled = pool_seeds(experiment)
    for method in (BACKBONE, *experiment.methods):
        folders = [experiment.folder(method, seed) for seed in (experiment.seeds if method != BACKBONE else (None,))]
        finished = [folder for folder in folders if (folder / "switches.json").is_file()]
        margins = [row for folder in finished for row in json.loads((folder / "switches.json").read_text()).values()]
        if not margins:
            continue
        yield [
            method,
            str(len(finished)),
            *(_edge(margins, edge, pooled.get(method, {}).get(edge)) for edge in Edge),
            *_answers(finished),
            _minutes(finished),
        ]


def _edge(margins: Sequence[dict[str, float]], edge: Edge, contrast: SwitchContrast | None) -> str:
    wins = [[row[f"{edge.value}.{direction.value}"] > 0 for direction in Direction] for row in margins]
    means = [sum(row[f"{edge.value}.{direction.value}"] for row in margins) / len(margins) for direction in Direction]
    original, edited = (sum(win[index] for win in wins) for index in (0, 1))
    both = sum(all(win) for win in wins)
    n = len(margins)
    ends = f"{100 * original / n:.0f} / {100 * edited / n:.0f} / {_percent(both, n, contrast)}"
    return f"{ends} ({means[0]:+.2f}, {means[1]:+.2f})"


def _answers(folders: Sequence[Path]) -> list[str]:
    """Format weighted accuracy, and the share of replies without an answer."""
    answers = [answer for folder in folders for answer in _read(folder / "answers.json")]
    if not answers:
        return ["-", "-"]
    weights = {ViewKind.GOLD: 0.5, ViewKind.EVIDENCE_CF: 0.25, ViewKind.QUESTION_CF: 0.25}
    accuracy = 0.0
    for kind, weight in weights.items():
        correct = [answer["correct"] for answer in answers if answer["view"] == kind]
        accuracy += weight * sum(correct) / len(correct)
    missing = sum(not answer["complete"] for answer in answers)
    return [f"{100 * accuracy:.1f} (n = {len(answers)})", f"{100 * missing / len(answers):.0f} %"]


def _read(path: Path) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return answers


def _minutes(folders: Sequence[Path]) -> str:
    minutes = [
        json.loads((folder / "minutes.json").read_text()) for folder in folders if (folder / "minutes.json").is_file()
    ]
    return f"{sum(minutes) / len(minutes):.1f}" if minutes else "-"


HEADS = ("method", "seeds", "S: O / CF / SW", "T: O / CF / SW", "C: O / CF / SW", "accuracy", "no answer", "minutes")


def table(experiment: Experiment) -> str:
    """Format the result as Markdown."""
    lines = [HEADS, tuple("---" for _ in HEADS), *rows(experiment)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_switch(experiment: Experiment, method: str) -> float:
    """Return the mean of the three switch rates over seeds and families, in points."""
    switched = []
    for seed in experiment.seeds:
        margins = json.loads((experiment.folder(method, seed) / "switches.json").read_text())
        switched += [
            all(row[f"{edge.value}.{direction.value}"] > 0 for direction in Direction)
            for row in margins.values()
            for edge in Edge
        ]
    return 100 * sum(switched) / len(switched)


def main() -> int:
    """Run the requested experiment, or the small version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the experiment; without it, the small version")
    parser.add_argument("--profile", default="short-easy")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--updates", type=int, default=16)
    parser.add_argument("--train", type=int, default=64)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--answered", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--model", default=None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--table", action="store_true", help="print the results so far and run nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = options.model or packaged_weights()
    with tempfile.TemporaryDirectory() as scratch:
        if options.out is None:
            sizes = {"seeds": (42,), "methods": ("sft", "e_closure"), "updates": 6, "train": 12, "held_out": 12}
            sizes |= {"answered": 0, "batch": 2, "out": Path(scratch)}
        else:
            sizes = {"seeds": tuple(options.seeds), "methods": tuple(options.methods), "updates": options.updates}
            sizes |= {"train": options.train, "held_out": options.held_out, "answered": options.answered}
            sizes |= {"batch": options.batch, "out": options.out}
        experiment = Experiment(
            profile=options.profile,
            learning_rate=options.learning_rate,
            model=model,
            **sizes,  # type: ignore[arg-type]
        )
        if not options.table:
            run(experiment)
        print(table(experiment))
        if options.table:
            return 0
        gain = mean_switch(experiment, "e_closure") - mean_switch(experiment, "sft")
    return print_result(
        name="mean switch rate, E-Closure over SFT at equal updates",
        value=round(gain, 1),
        unit="points",
        goal=f"> {GOAL:g}",
        holds=gain > GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
