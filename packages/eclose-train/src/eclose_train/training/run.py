"""Training run in a folder: it can be stopped at any moment, continues when started again, and is finished once.

Its forecast loads no weights: families, updates, tokens and trained parameters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.local.weights import (
    build_empty_model,
    ignore_renamed_property,
    leave_out_routers,
    load_causal_model,
    load_tokenizer,
    require_4bit_support,
)
from eclose.errors import UserError
from eclose.files.atomic import AtomicFile, write_json
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import Manifest, hash_files, hash_work_identity, read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.progress import ProgressOption, is_shown
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.family import Family
from eclose.values.identity import canonical_json
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy, limit_forward_tokens
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.admission import FamilyAdmission, admit_families
from eclose_train.training.batching import ForestDataset, UpdateSampler
from eclose_train.training.checkpoints import CHECKPOINT_RECIPE_FILE, COMPLETE_MARKER_FILE, list_checkpoints
from eclose_train.training.config import AUTO
from eclose_train.training.log import (
    METRICS_FILE,
    TerminationCheckpoint,
    TrainingMetricsWriter,
    TrainingReporter,
    TrainingSessionRecorder,
)
from eclose_train.training.objective import TrainingMethod, build_objective
from eclose_train.training.recipe import (
    TrainingRecipe,
    describe_setting_differences,
    resolve_training_settings,
    result_deciding_settings,
)
from eclose_train.training.trainer import EClosureTrainer

if TYPE_CHECKING:
    from eclose_train.training.batching import FamilyDataset
    from eclose_train.training.config import EClosureConfig
    from eclose_train.training.recipe import TrainedModelSettings

COUNTED_FAMILIES = 256
"""Families of the first epoch whose tokens are counted; the figures of all follow from their mean."""


@dataclass(frozen=True)
class TrainingTokens:
    """Tokens of one epoch.

    Attributes:
        computed: Tokens that the model computes, with those that the scores of a family share counted once.
        plain: Tokens with one sequence for each score, as a model is trained whose trees are not exact.
        counted: Number of families that were rendered for these figures; fewer than all for an estimate.
    """

    computed: int
    plain: int
    counted: int


@dataclass(frozen=True)
class TrainingRunForecast:
    """What a training run would do.

    Attributes:
        out: Folder of the run.
        model: Weights to train.
        method: Objective of training.
        finished: Whether the folder holds this run, finished.
        resumes_from: Checkpoint from which the run would continue; None from the start.
        counts: Numbers of training families by outcome.
        held_out: Numbers of held-out families by outcome; None without them.
        left_out: Families that would be left out, with reasons.
        epochs: Passes over the families.
        updates: Optimizer updates of the whole run.
        families_per_update: Families in one update, over all processes.
        tokens: Tokens of an epoch.
        trained_parameters: Number of parameters that are trained.
        parameters: Number of parameters of the model with its adapter.
    """

    out: Path
    model: str
    method: str
    finished: bool
    resumes_from: Path | None
    counts: RecordCounts
    held_out: RecordCounts | None
    left_out: tuple[ReadRecord[Family], ...]
    epochs: float
    updates: int
    families_per_update: int
    tokens: TrainingTokens
    trained_parameters: int
    parameters: int


def count_updates(config: EClosureConfig, families: int) -> tuple[int, float]:
    """Return the updates of a run and its epochs, as Transformers' ``Trainer`` counts them."""
    per_epoch = ceil(families / config.families_per_update)
    if config.max_steps > 0:
        return config.max_steps, config.max_steps / per_epoch
    return ceil(config.num_train_epochs * per_epoch), config.num_train_epochs


def count_epoch_tokens(families: FamilyDataset, renderer: TokenPathRenderer, config: EClosureConfig) -> TrainingTokens:
    """Count the tokens of the first epoch, or estimate them from its first families."""
    # The exactness of trees is checked on the weights, so a run may fall back from the tree that auto names first.
    strategy = ScoringStrategy.TREE if config.strategy == AUTO else ScoringStrategy(config.strategy)
    dataset = ForestDataset(
        families=families,
        renderer=renderer,
        objective=build_objective(TrainingMethod(config.method), config.margin_weight, config.hinges()),
        tokens=ScoredTokens(config.response_tokens),
        strategy=strategy,
        budget=limit_forward_tokens(config.tokens_per_forward, AttentionBackend.SDPA),
        seed=config.seed,
    )
    counted = computed = plain = 0
    for update in UpdateSampler(families.ids, seed=config.seed, size=config.families_per_update):
        for forest in dataset.build_forests([dataset[draw] for draw in update]):
            computed, plain = computed + forest.tokens, plain + forest.plain_tokens
        counted += len(update)
        if counted >= COUNTED_FAMILIES:
            break
    scale = len(families) / counted
    return TrainingTokens(round(computed * scale), round(plain * scale), counted)


def count_parameters(settings: TrainedModelSettings) -> tuple[int, int]:
    """Return the numbers of trained and of all parameters, from the model's configuration alone."""
    from peft import get_peft_model  # noqa: PLC0415 - only where an adapter is trained

    model = build_empty_model(settings.model, settings.revision)
    if (adapter := _lora(settings, model)) is not None:
        with ignore_renamed_property():
            model = get_peft_model(model, adapter, low_cpu_mem_usage=True)
    counts = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    return sum(count for count, trained in counts if trained), sum(count for count, _ in counts)


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run."""

    adapter: Path
    """Folder of the trained adapter."""
    counts: RecordCounts
    """Numbers of training families by outcome."""
    again: bool
    """Whether the run had been finished before this call."""
    resumed_from: Path | None = None
    """Checkpoint from which the run continued."""
    left_out: list[ReadRecord[Family]] = field(default_factory=list)
    """Families that were left out, with reasons."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Latest value of every figure in the log."""


class TrainingTerminatedError(UserError):
    """Training was asked to terminate, wrote a checkpoint and stopped."""

    exit_code = 143  # 128 + 15, the number of SIGTERM: what a shell reports for a program that the signal ended


@dataclass(frozen=True)
class TrainingPlan:
    """A training run in a folder: what is trained on which families.

    Attributes:
        families: Families to train on, as JSON Lines.
        recipe: Settings of model and training.
        out: Folder of the run.
        development: Held-out families to evaluate on.
        tick: Called for every family that is read.
        progress: Whether to show phases and updates, or a function that is called with them.
    """

    families: Path
    recipe: TrainingRecipe
    out: Path
    development: Path | None = None
    tick: Callable[[], None] = lambda: None
    progress: ProgressOption = True

    def run(self) -> TrainingResult:
        """Train an adapter; continue an interrupted run, and return at once where the run is finished.

        Raises:
            UserError: No family can be trained on, or the folder holds another run.
            TrainingTerminatedError: The process received SIGTERM; a checkpoint was written.
        """
        out, config, settings = self.out, self.config, self.recipe.model
        if (manifest := self.read_finished()) is not None:
            return TrainingResult(out / "adapter", manifest.counts, again=True)
        if settings.load_in_4bit:
            require_4bit_support(settings.model)  # before the families are read, which may take minutes
        sessions = TrainingSessionRecorder(out, config)
        reporter = TrainingReporter(self.progress, config)
        reporter.report_phase(f"reading {self.families}")
        renderer = self._load_renderer()
        # One process decides and the others read its record. local=False: one of all machines, which share the folder.
        with config.main_process_first(local=False, desc="admission"):
            admission, held_out = self._admit(renderer, keep_record=True)
        counts, left_out = admission.tally.counts(), self._list_left_out(admission, held_out)
        reporter.report_phase(f"families: {counts}")
        model = _load_model(settings, sessions.dtype, reporter)
        trainer = EClosureTrainer(
            model,
            config,
            admission.families,
            held_out.families if held_out else None,
            processing_class=renderer.tokenizer,
            peft_config=_lora(settings, model),
            callbacks=[sessions, TrainingMetricsWriter(out), termination := TerminationCheckpoint()],
        )
        reporter.watch(trainer)
        trainer.recipe = self.record  # set before training starts, since every checkpoint is saved with it
        # Written before the first update, so that a later call with other settings is refused from the start.
        if config.should_save:
            self._write_begin(left_out)
        checkpoint = _train(trainer, termination, out, reporter)
        trainer.save_model(str(out / "adapter"))
        if config.should_save:
            self._write_end(trainer, counts, sessions)
        metrics = {name: value for line in trainer.state.log_history for name, value in line.items()}
        return TrainingResult(
            out / "adapter", counts, again=False, resumed_from=checkpoint, left_out=left_out, metrics=metrics
        )

    def forecast(self) -> TrainingRunForecast:
        """Return what ``run`` would do; write nothing and load no weights.

        Raises:
            UserError: As ``run`` before its first update: no family, another run in the folder, a missing library.
        """
        config, model = self.config, self.recipe.model
        finished = self.read_finished() is not None
        if model.load_in_4bit:
            require_4bit_support(model.model)
        renderer = self._load_renderer()
        admission, held_out = self._admit(renderer, keep_record=False)
        trained, parameters = count_parameters(model)
        updates, epochs = count_updates(config, len(admission.families))
        return TrainingRunForecast(
            out=self.out,
            model=model.model,
            method=config.method,
            finished=finished,
            resumes_from=find_last_checkpoint(self.out),
            counts=admission.tally.counts(),
            held_out=None if held_out is None else held_out.tally.counts(),
            left_out=tuple(self._list_left_out(admission, held_out)),
            epochs=epochs,
            updates=updates,
            families_per_update=config.families_per_update,
            tokens=count_epoch_tokens(admission.families, renderer, config),
            trained_parameters=trained,
            parameters=parameters,
        )

    @cached_property
    def config(self) -> EClosureConfig:
        """Settings of training; by default held-out families are evaluated after every epoch."""
        evaluation = self.recipe.training.get("eval_strategy")
        if not self.development and evaluation not in (None, "no"):
            raise UserError(
                f"eval_strategy = {evaluation!r}: there are no families to evaluate on. Pass --development."
            )
        bar = not self.recipe.training.get("disable_tqdm", not is_shown())
        strategy = evaluation or ("epoch" if self.development else "no")
        return self.recipe.config(self.out, eval_strategy=strategy, disable_tqdm=not bar)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every resolved setting, as it is before a trainer fills in its own."""
        return resolve_training_settings(self.recipe.model, self.config)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Hashes of the files of families by name; computed once, since the files may be large."""
        return hash_files([path for path in (self.families, self.development) if path])

    @cached_property
    def inputs(self) -> dict[str, dict[str, str] | None]:
        """Files of families by role, each with its hash."""
        paths = {"families": self.families, "development": self.development}
        return {
            role: None if path is None else {"file": path.name, "hash": self._hash(path)}
            for role, path in paths.items()
        }

    @property
    def deciding(self) -> dict[str, Any]:
        """Settings that determine the result; with the hash of the held-out file, which ``hashes`` does not tell apart
        from the training file."""
        held_out = self.inputs["development"]
        return {**result_deciding_settings(self.settings), "development": held_out and held_out["hash"]}

    @cached_property
    def work(self) -> str:
        """Identity of the run: a hash of deciding settings and families."""
        return hash_work_identity("train", self.deciding, self.hashes)

    @property
    def record(self) -> dict[str, Any]:
        """Content of ``recipe.json``: every resolved setting, the families, and the identity of the run."""
        return {**self.settings, "inputs": self.inputs, "work": self.work}

    def _hash(self, path: Path) -> str:
        # Two files of the same name are listed by their paths.
        return self.hashes.get(path.name) or self.hashes[path.as_posix()]

    def _load_renderer(self) -> TokenPathRenderer:
        model, config = self.recipe.model, self.config
        prompt = ResponsePrompt(config.demonstrations, PromptOrder(config.order))
        return TokenPathRenderer(load_tokenizer(model.model, model.revision), prompt, config.max_length)

    def _admit(
        self, renderer: TokenPathRenderer, *, keep_record: bool
    ) -> tuple[FamilyAdmission, FamilyAdmission | None]:
        """Return the admitted training families, and the held-out ones if there are any."""

        def admit(path: Path, name: str) -> FamilyAdmission:
            record = self.out / name if keep_record else None
            return admit_families(path, renderer, self.tick, record=record, file_hash=self._hash(path))

        training = admit(self.families, "admission.json")
        return training, admit(self.development, "admission.development.json") if self.development else None

    def _list_left_out(self, training: FamilyAdmission, held_out: FamilyAdmission | None) -> list[ReadRecord[Family]]:
        """Return the families that are left out; held-out ones with the name of their file."""
        if self.development is None or held_out is None:
            return training.left_out
        name = self.development.name
        return [*training.left_out, *(replace(row, where=f"{name} {row.where}") for row in held_out.left_out)]

    def read_finished(self) -> Manifest | None:
        """Return the manifest if this run is finished; raise where the folder holds another run."""
        recipe, path = self.out / CHECKPOINT_RECIPE_FILE, self.out / "manifest.json"
        manifest = read_manifest(path) if path.is_file() else None
        if manifest is not None and manifest.work_id == self.work:
            return manifest
        if recipe.is_file() or manifest is not None:
            # Another identity is refused only if a setting or file differs. A setting that a later library added at its
            # default is the same run.
            state = "finished run" if manifest is not None else "run begun"
            self._refuse_other(recipe, state)
        return manifest

    def _refuse_other(self, recipe: Path, state: str) -> None:
        """Raise with every setting and file that differs from those of the run in the folder."""
        try:
            before = json.loads(recipe.read_text("utf-8"))
            files = before["inputs"]["families"], before["inputs"]["development"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{recipe}: does not name the run of this folder. Write to another folder, or remove this one."
            ) from error
        if before.get("work") == self.work:
            return  # this run, interrupted before its manifest was written
        settings = list(describe_setting_differences(before, result_deciding_settings(self.settings)))
        data = [
            f"{role} = {_describe_file(old)} before, {_describe_file(self.inputs[role])} now"
            for role, old in zip(("families", "development"), files, strict=True)
            if (old or {}).get("hash") != (self.inputs[role] or {}).get("hash")
        ]
        if settings or data:
            what = "families or settings" if data else "settings"
            raise UserError(
                f"{self.out}: holds a {state} with other {what}: {'; '.join((*data, *settings))}. "
                "Write to another folder, or remove this one."
            )

    def _write_begin(self, left_out: list[ReadRecord[Family]]) -> None:
        """Write the recipe of the run, and the families that were left out."""
        write_json(self.out / CHECKPOINT_RECIPE_FILE, self.record)
        with AtomicFile(self.out / "left_out.jsonl") as file:
            for record in left_out:
                # Messages may quote ids with half a surrogate pair, which UTF-8 cannot encode.
                line = {"where": record.where, "reason": record.rejected or str(record.error)}
                file.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")

    def _write_end(self, trainer: EClosureTrainer, counts: RecordCounts, sessions: TrainingSessionRecorder) -> None:
        """Write the manifest, which marks the run as finished."""
        resources = {
            **sessions.finish(trainer.state.global_step),
            "scoring": trainer.scoring,
            "dtype": trainer.dtype,
        }
        outputs = hash_files([*sorted((self.out / "adapter").glob("*.safetensors")), self.out / METRICS_FILE])
        manifest = Manifest("train", self.deciding, self.hashes, outputs, counts, run=resources)
        manifest.write(self.out / "manifest.json")


def _train(
    trainer: EClosureTrainer, termination: TerminationCheckpoint, out: Path, reporter: TrainingReporter
) -> Path | None:
    """Train from the last checkpoint, which is returned, or the start; raise where the process was terminated."""
    checkpoint = find_last_checkpoint(out)
    begin = "training from the start" if checkpoint is None else f"continuing from {checkpoint}"
    every = trainer.args.logging_steps
    updates = "update" if every == 1 else f"{every:g} updates"
    reporter.report_phase(f"{begin}; a line every {updates} here and in {out / METRICS_FILE}")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if termination.stopped:
        raise TrainingTerminatedError(
            f"{out}: asked to terminate, stopped after update {trainer.state.global_step:,} of "
            f"{trainer.state.max_steps:,} with a checkpoint. Run the same command to continue."
        )
    return checkpoint


def find_last_checkpoint(out: Path) -> Path | None:
    """Return the newest complete checkpoint of a run."""
    complete = {step: folder for step, folder in list_checkpoints(out) if (folder / COMPLETE_MARKER_FILE).is_file()}
    return complete[max(complete)] if complete else None


def _describe_file(file: dict[str, str] | None) -> str:
    return f"{file['file']} ({file['hash'][:19]})" if file else "none"


def _load_model(settings: TrainedModelSettings, begun_with: str | None, reporter: TrainingReporter) -> Any:
    """Load the model; a run that goes on keeps the precision that was chosen when it was begun."""
    reporter.report_phase(f"loading {settings.model}")
    dtype = settings.dtype if settings.dtype != "auto" or begun_with is None else begun_with
    model = load_causal_model(
        settings.model, revision=settings.revision, dtype=dtype, load_in_4bit=settings.load_in_4bit
    )
    # The trainer scores a family in every way when it is built, which takes as long as some updates.
    reporter.report_phase("checking with these weights how a family can be scored")
    return model


def _lora(settings: TrainedModelSettings, model: Any) -> Any:
    if not settings.lora_rank:
        return None
    from peft import LoraConfig  # noqa: PLC0415 - only where an adapter is trained

    config = LoraConfig(
        r=settings.lora_rank,
        # The pinned commit goes into adapter_config.json, so that an adapter names its base even outside of its run.
        revision=settings.revision,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=settings.lora_targets,
        use_dora=settings.use_dora,
        use_rslora=settings.use_rslora,
        task_type="CAUSAL_LM",
    )
    if settings.lora_targets == "all-linear":
        leave_out_routers(config, model)
    return config


def is_first_process() -> bool:
    """Return whether this process is the one that prints and writes for the run."""
    # From the launcher's environment: messages are printed before there is a process group to ask.
    return int(os.environ.get("RANK", "0")) == 0
