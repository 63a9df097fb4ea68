"""Run one training in one folder: it can be stopped at any moment, continues when started again, and is done once."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.family import Family
from eclose.core.identity import canonical_json
from eclose.errors import UserError
from eclose.likelihood.render import Renderer
from eclose.models.weights import load_model, load_tokenizer
from eclose.protocol.response_prompt import Order, ResponsePrompt
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.counts import Counts
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.manifest import Manifest, hash_files, hash_work, read_manifest
from eclose.training.admission import admit
from eclose.training.checkpoints import COMPLETE, RECIPE, checkpoints
from eclose.training.recipe import Recipe, deciding, differing, resolved_settings
from eclose.training.run_time import Sessions
from eclose.training.trainer import EClosureTrainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose.store.records.indexed import IndexedFile
    from eclose.training.config import EClosureConfig
    from eclose.training.recipe import ModelSettings


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    adapter: Path
    counts: Counts
    again: bool
    """Whether the run had been finished before this call."""
    resumed_from: Path | None
    left_out: list[ReadRecord[Family]]
    metrics: dict[str, float]


def run_training(
    families: Path,
    recipe: Recipe,
    out: Path,
    development: Path | None = None,
    tick: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """Train an adapter on families. The same call again continues where it stopped, or does nothing once done."""
    config = _config(recipe, out, development)
    run = _Run(families, resolved_settings(recipe.model, config), out, development)
    if (manifest := run.finished()) is not None:
        return TrainingResult(out / "adapter", manifest.counts, True, None, [], {})
    sessions = Sessions(out, config)
    tokenizer = load_tokenizer(recipe.model.model, recipe.model.revision)
    prompt = ResponsePrompt(config.demonstrations, Order(config.order))
    renderer = Renderer(tokenizer, prompt, config.max_length)
    with config.main_process_first(local=False, desc="admission"):  # the others read what the first wrote down
        admission = admit(families, renderer, tick, record=out / "admission.json")
        left_out = list(admission.left_out)
        held_out: IndexedFile[Family] | None = None
        if development:
            held_out_admission = admit(development, renderer, tick, record=out / "admission.development.json")
            held_out = held_out_admission.families
            left_out += [
                replace(record, where=f"{development.name} {record.where}") for record in held_out_admission.left_out
            ]
    trainer = EClosureTrainer(
        _model(recipe.model),
        config,
        admission.families,
        held_out,
        processing_class=tokenizer,
        peft_config=_lora(recipe.model),
        callbacks=[sessions],
    )
    trainer.recipe = run.recipe
    if config.should_save:
        run.begin(left_out)
    checkpoint = last_complete(out)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(out / "adapter"))
    if config.should_save:
        run.end(trainer, admission.tally.counts(), sessions)
    return TrainingResult(
        out / "adapter", admission.tally.counts(), False, checkpoint, left_out, _last(trainer.state.log_history)
    )


def last_complete(out: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end."""
    complete = {step: folder for step, folder in checkpoints(out) if (folder / COMPLETE).is_file()}
    return complete[max(complete)] if complete else None


def _config(recipe: Recipe, out: Path, development: Path | None) -> EClosureConfig:
    """Build the settings of the run. Held-out families are evaluated every epoch unless the recipe differs."""
    evaluation = recipe.training.get("eval_strategy")
    if not development and evaluation not in (None, "no"):
        raise UserError(f"eval_strategy = {evaluation!r}: there are no families to evaluate on. Give --development.")
    bar = not recipe.training.get("disable_tqdm", not sys.stderr.isatty())
    strategy = evaluation or ("epoch" if development else "no")
    return recipe.config(out, eval_strategy=strategy, disable_tqdm=not bar)


@dataclass(frozen=True)
class _Run:
    families: Path
    settings: dict[str, Any]
    """Every resolved setting."""
    out: Path
    development: Path | None

    @cached_property
    def inputs(self) -> dict[str, dict[str, str] | None]:
        """The files of families by their role, each with its hash."""
        paths = {"families": self.families, "development": self.development}
        return {role: None if path is None else self._described(path) for role, path in paths.items()}

    def _described(self, path: Path) -> dict[str, str]:
        return {"file": path.name, "hash": self.hashes.get(path.name) or self.hashes[path.as_posix()]}

    @property
    def deciding(self) -> dict[str, Any]:
        """The settings that decide the result. The held-out file is one, so that it is not taken for the other."""
        held_out = self.inputs["development"]
        return {**deciding(self.settings), "development": held_out and held_out["hash"]}

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The files of families by name, each with its hash; read once, since they may be large."""
        return hash_files([path for path in (self.families, self.development) if path])

    @cached_property
    def work(self) -> str:
        """The identity of the run: a hash of resolved settings and of the families."""
        return hash_work("train", self.deciding, self.hashes)

    @property
    def recipe(self) -> dict[str, Any]:
        """What ``recipe.json`` holds: every resolved setting, the families, and the identity of the run."""
        return {**self.settings, "inputs": self.inputs, "work": self.work}

    def finished(self) -> Manifest | None:
        """Return the manifest if this run was finished before; refuse a folder that holds another run."""
        recipe, manifest = self.out / RECIPE, self.out / "manifest.json"
        ended = read_manifest(manifest) if manifest.is_file() else None
        if ended is not None and ended.work == self.work:
            return ended
        if recipe.is_file() or ended is not None:
            state = "finished run" if ended is not None else "run begun"
            self._refuse_other(recipe, state)
        return ended

    def _refuse_other(self, recipe: Path, state: str) -> None:
        """Raise with the name of every setting and file that differs from those the folder was begun with."""
        try:
            before = json.loads(recipe.read_text("utf-8"))
            files = before["inputs"]["families"], before["inputs"]["development"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{recipe}: does not say what this folder was begun for. Write to another folder, or remove this one."
            ) from error
        if before.get("work") == self.work:
            return
        settings = list(differing(before, deciding(self.settings)))
        data = [
            f"{role} = {_named(old)} before, {_named(self.inputs[role])} now"
            for role, old in zip(("families", "development"), files, strict=True)
            if (old or {}).get("hash") != (self.inputs[role] or {}).get("hash")
        ]
        if settings or data:
            what = "families or settings" if data else "settings"
            raise UserError(
                f"{self.out}: holds a {state} with other {what}: {'; '.join((*data, *settings))}. "
                "Write to another folder, or remove this one."
            )

    def begin(self, left_out: list[ReadRecord[Family]]) -> None:
        """Write the resolved settings with the identity of the run, and the families that were left out."""
        with AtomicFile(self.out / RECIPE) as file:
            file.write(json.dumps(self.recipe, indent=2, ensure_ascii=False).encode() + b"\n")
        with AtomicFile(self.out / "left_out.jsonl") as file:
            for record in left_out:
                line = {"where": record.where, "reason": record.rejected or str(record.error)}
                file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")

    def end(self, trainer: EClosureTrainer, counts: Counts, sessions: Sessions) -> None:
        """Write the log as records, then the manifest, which says that the run is finished."""
        with AtomicFile(self.out / "metrics.jsonl") as file:
            for line in trainer.state.log_history:
                file.write(json.dumps(line).encode() + b"\n")
        outputs = hash_files([*sorted((self.out / "adapter").glob("*.safetensors")), self.out / "metrics.jsonl"])
        took = {**sessions.finish(trainer.state.global_step), "scoring": trainer.choice.name}
        manifest = Manifest("train", self.deciding, self.hashes, outputs, counts, run=took)
        manifest.write(self.out / "manifest.json")


def _named(file: dict[str, str] | None) -> str:
    return f"{file['file']} ({file['hash'][:19]})" if file else "none"


def _model(settings: ModelSettings) -> Any:
    return load_model(settings.model, revision=settings.revision, dtype=settings.dtype)


def _lora(settings: ModelSettings) -> Any:
    if not settings.lora_rank:
        return None
    from peft import LoraConfig  # noqa: PLC0415 - only where an adapter is trained

    return LoraConfig(
        r=settings.lora_rank,
        revision=settings.revision,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=settings.lora_targets,
        task_type="CAUSAL_LM",
    )


def _last(history: list[dict[str, float]]) -> dict[str, float]:
    return {name: value for line in history for name, value in line.items()}


def is_first_process() -> bool:
    """Return whether this process reports for the run."""
    return int(os.environ.get("RANK", "0")) == 0
