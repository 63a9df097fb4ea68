"""One training run in one folder: started, stopped at any moment, started again, done once."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclosure.core.family import Family
from eclosure.core.identity import canonical_json
from eclosure.errors import UserError
from eclosure.likelihood.render import Renderer
from eclosure.protocol.response import Order, ResponsePrompt
from eclosure.store.atomic import AtomicFile
from eclosure.store.manifest import Counts, Manifest, file_hashes, read_manifest, work_hash
from eclosure.store.records import ReadRecord
from eclosure.train.admit import admit
from eclosure.train.candidates import COMPLETE, checkpoints
from eclosure.train.recipe import Recipe
from eclosure.train.trainer import EClosureTrainer
from eclosure.weights import load_model, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclosure.store.indexed import IndexedFile
    from eclosure.train.config import EClosureConfig
    from eclosure.train.recipe import ModelSettings

_SAME_RESULT = (
    "processes",
    "tokens_per_forward",
    "dataloader_num_workers",
    "logging_steps",
    "report_to",
    "disable_tqdm",
    "hub_token",
)
"""Settings that change how a run goes, not what comes of it; it may go on with others. They are not written down."""


@dataclass(frozen=True)
class Trained:
    """What a run left."""

    adapter: Path
    counts: Counts
    again: bool
    """Whether it had been done before."""
    resumed_from: Path | None
    left_out: list[ReadRecord[Family]]
    metrics: dict[str, float]


def train(
    families: Path,
    recipe: Recipe,
    out: Path,
    development: Path | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Trained:
    """Train an adapter on families. The same call again goes on where it stopped, or does nothing when all is done."""
    run = _Run(families, recipe, out, development)
    if (done := run.finished()) is not None:
        return Trained(out / "adapter", done.counts, True, None, [], {})
    bar = not recipe.training.get("disable_tqdm", not sys.stderr.isatty())
    config = recipe.config(out, **run.evaluation(), disable_tqdm=not bar)
    tokenizer = load_tokenizer(recipe.model.model, recipe.model.revision)
    prompt = ResponsePrompt(config.demonstrations, Order(config.order))
    renderer = Renderer(tokenizer, prompt, config.max_length)
    with config.main_process_first(local=False, desc="admission"):  # the others read what the first wrote down
        admission = admit(families, renderer, tick, record=out / "admission.json")
        left_out = list(admission.left_out)
        held_out: IndexedFile[Family] | None = None
        if development:
            held_out_admission = admit(development, renderer, tick, record=out / "admission.development.json")
            held_out = held_out_admission.index
            left_out += [
                replace(record, where=f"{development.name} {record.where}") for record in held_out_admission.left_out
            ]
    trainer = EClosureTrainer(
        _model(recipe.model),
        config,
        admission.index,
        held_out,
        processing_class=tokenizer,
        peft_config=_lora(recipe.model),
    )
    if config.should_save:
        run.begin(config, left_out)
    checkpoint = last_complete(out)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(out / "adapter"))
    if config.should_save:
        run.end(trainer, admission.tally.counts())
    return Trained(
        out / "adapter", admission.tally.counts(), False, checkpoint, left_out, _last(trainer.state.log_history)
    )


def last_complete(out: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = {step: folder for step, folder in checkpoints(out) if (folder / COMPLETE).is_file()}
    return whole[max(whole)] if whole else None


@dataclass(frozen=True)
class _Run:
    families: Path
    recipe: Recipe
    out: Path
    development: Path | None

    @property
    def settings(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.recipe.plain().items() if name not in _SAME_RESULT}
        plain: dict[str, Any] = json.loads(json.dumps(kept, default=str))
        return plain

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Families by hash; read through once, since the file may be large."""
        return file_hashes([path for path in (self.families, self.development) if path])

    @property
    def work(self) -> str:
        """What this run is known by."""
        return work_hash("train", self.settings, self.inputs)

    def evaluation(self) -> dict[str, Any]:
        """Held-out families are evaluated with every checkpoint, unless the recipe says otherwise."""
        asked = self.recipe.training.get("eval_strategy")
        if not self.development and asked not in (None, "no"):
            raise UserError(f"eval_strategy = {asked!r}: there are no families to evaluate on. Give --development.")
        return {"eval_strategy": asked or ("epoch" if self.development else "no")}

    def finished(self) -> Manifest | None:
        """The manifest of this run when it was done before; refuses a folder that holds another run."""
        begun = self.out / "recipe.json"
        manifest = self.out / "manifest.json"
        if manifest.is_file():
            done = read_manifest(manifest)
            if done.work != self.work:
                raise self._other("holds a finished run with other settings or families")
            return done
        if begun.is_file() and json.loads(begun.read_text("utf-8")).get("work") != self.work:
            raise self._other("holds a run begun with other settings or families")
        return None

    def _other(self, what: str) -> UserError:
        return UserError(f"{self.out}: {what}. Write to another folder, or remove this one.")

    def begin(self, config: EClosureConfig, left_out: list[ReadRecord[Family]]) -> None:
        """Leave word of what this folder is for, and of the families that were left out."""
        with AtomicFile(self.out / "recipe.json") as file:
            told = {**_defaults(config), **self.settings, "work": self.work}
            file.write(json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n")
        with AtomicFile(self.out / "left_out.jsonl") as file:
            for record in left_out:
                line = {"where": record.where, "reason": record.rejected or str(record.error)}
                file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")

    def end(self, trainer: EClosureTrainer, counts: Counts) -> None:
        """The log as records, and the manifest, which says that all is done."""
        with AtomicFile(self.out / "metrics.jsonl") as file:
            for line in trainer.state.log_history:
                file.write(json.dumps(line).encode() + b"\n")
        outputs = file_hashes([*sorted((self.out / "adapter").glob("*.safetensors")), self.out / "metrics.jsonl"])
        Manifest("train", self.settings, self.inputs, outputs, counts).write(self.out / "manifest.json")


def _defaults(config: EClosureConfig) -> dict[str, Any]:
    """What switch test and selection must know to ask the model as it was trained, whether set or not."""
    return {name: getattr(config, name) for name in ("demonstrations", "order", "response_tokens", "max_length")}


def _model(settings: ModelSettings) -> Any:
    return load_model(settings.model, revision=settings.revision, dtype=settings.dtype)


def _lora(settings: ModelSettings) -> Any:
    if not settings.lora_rank:
        return None
    from peft import LoraConfig  # noqa: PLC0415 - only where an adapter is trained

    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=settings.lora_targets,
        task_type="CAUSAL_LM",
    )


def _last(history: list[dict[str, float]]) -> dict[str, float]:
    return {name: value for line in history for name, value in line.items()}


def is_first_process() -> bool:
    """Whether this process speaks for the run."""
    return int(os.environ.get("RANK", "0")) == 0
