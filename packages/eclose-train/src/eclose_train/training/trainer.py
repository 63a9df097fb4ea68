"""Trainer for the objectives of the paper: which families make up an update, their scores and their loss.

Optimizer, precision, distribution and checkpoints are those of Transformers' ``Trainer``.
"""

from __future__ import annotations

import json
import warnings
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import DistributedType, broadcast_object_list
from accelerate.utils.memory import clear_device_cache
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, set_seed
from transformers.trainer_utils import EvalLoopOutput, SaveStrategy, rotate_checkpoints
from transformers.training_args import OptimizerNames

from eclose.calls.local.weights import ignore_renamed_property, model_table_name
from eclose.errors import SettingError
from eclose.files.atomic import AtomicFile
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose_train.likelihood.exactness_check import (
    ScoringChoice,
    choose_scoring_strategy,
    confirm_on_family,
    set_model_attention,
)
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy, limit_forward_tokens
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.batching import (
    FamilyDraw,
    FamilyList,
    ForestDataset,
    UpdateSampler,
    order_epoch_families,
    take_process_share,
)
from eclose_train.training.checkpoints import CHECKPOINT_RECIPE_FILE, COMPLETE_MARKER_FILE, remove_safety_checkpoints
from eclose_train.training.config import AUTO
from eclose_train.training.log import TrainingLogMeans, install_training_progress
from eclose_train.training.loss import compute_family_losses
from eclose_train.training.model_card import render_model_card
from eclose_train.training.objective import TrainingMethod, build_objective

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from eclose_train.likelihood.spans import SpanScore
    from eclose_train.training.batching import FamilyDataset, FamilyForest
    from eclose_train.training.config import EClosureConfig
    from eclose_train.training.objective import TrainingObjective


class UpdateLoader(DataLoader[Any]):
    """Loader of updates that passes the epoch on to its sampler."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler; Transformers calls this before every epoch."""
        if isinstance(self.batch_sampler, UpdateSampler):
            self.batch_sampler.set_epoch(epoch)


class EpochCheckpoints(TrainerCallback):
    """Callback that saves at the end of every epoch also where checkpoints for safety are saved by updates."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Save at the end of a complete epoch."""
        # At a multiple of save_steps the checkpoint is written again, now with the evaluation of the epoch in its log.
        if args.save_strategy == SaveStrategy.STEPS and float(state.epoch).is_integer():
            control.should_save = True


class EClosureTrainer(Trainer):
    """Trainer of any of the paper's objectives on families, each in one forward pass where the model allows it."""

    # The loss is normalised by the families of the complete update, so Transformers must not divide it again.
    loss_is_scaled_for_ga = True
    args: EClosureConfig
    model: Any
    train_dataset: Any
    recipe: dict[str, Any]
    """Every setting and input of a run in a folder, written beside each adapter and onto its card."""

    def __init__(
        self,
        model: Any,
        args: EClosureConfig,
        train_dataset: FamilyDataset | Sequence[Any],
        eval_dataset: FamilyDataset | Sequence[Any] | None = None,
        processing_class: Any = None,
        peft_config: Any = None,
        **kwargs: Any,
    ) -> None:
        """Prepare a run.

        Args:
            model: A causal language model of Transformers.
            args: Settings of the run.
            train_dataset: Families to train on.
            eval_dataset: Held-out families.
            processing_class: The model's tokenizer.
            peft_config: Configuration of a new adapter on the model; None trains the model as it is.
            **kwargs: Further arguments of Transformers' ``Trainer``.
        """
        if processing_class is None:
            raise SettingError("processing_class: pass the model's tokenizer.")
        check_processes(args)
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = False  # every forward pass uses all parameters
        # For the reports of Transformers; what an update contains is decided by the sampler.
        args.per_device_train_batch_size = ceil(args.families_per_update / args.world_size)
        if peft_config is not None:
            set_seed(args.seed)  # the initial values of the adapter are drawn here
            model = _add_adapter(model, peft_config)
        # Reentrant checkpointing, which a user may choose, yields no gradients where no input needs any, and below an
        # adapter the embeddings are frozen.
        if args.gradient_checkpointing and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
        super().__init__(
            model=model,
            args=args,
            train_dataset=_as_dataset(train_dataset),
            eval_dataset=_as_dataset(eval_dataset),
            processing_class=processing_class,
            **kwargs,
        )
        self.objective: TrainingObjective = build_objective(
            TrainingMethod(args.method), args.margin_weight, args.hinges()
        )
        prompt = ResponsePrompt(args.demonstrations, PromptOrder(args.order))
        self.renderer = TokenPathRenderer(processing_class, prompt, args.max_length)
        with self.accelerator.autocast():  # trees are checked in the precision of training
            self.choice = _choose_scoring(self.model, args, self._longest_scores_of_first_update)
        if self.choice.message and args.process_index == 0:
            warnings.warn(self.choice.message, stacklevel=2)
        self._log_means = TrainingLogMeans()
        self.recipe = {}
        # Trackers read both when training begins.
        identified: Any = args
        identified.run_identity = {"method": args.method, "seed": args.seed, "backbone": self._backbone}
        args.run_name = args.run_name or f"{self._backbone} {args.method} {args.seed}"
        self.add_callback(EpochCheckpoints)
        install_training_progress(self)

    @property
    def scoring(self) -> str:
        """Name of the scoring strategy."""
        return self.choice.name

    @property
    def dtype(self) -> str:
        """Precision of the weights in memory, which says what the setting ``auto`` came to."""
        return str(self.accelerator.unwrap_model(self.model).dtype).removeprefix("torch.")

    @property
    def _backbone(self) -> str:
        config = self.accelerator.unwrap_model(self.model).config
        return model_table_name(getattr(config, "_name_or_path", "") or "model")

    # ---- families ----

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader whose batches are this process's shares of the updates."""
        families: FamilyDataset = self.train_dataset
        sampler = UpdateSampler(
            families.ids,
            seed=self.args.seed,
            size=self.args.families_per_update,
            rank=self.args.process_index,
            world=self.args.world_size,
        )
        return self._loader(families, sampler)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return a loader of held-out families in their order, one per process at a time."""
        families = _as_dataset(self.eval_dataset if eval_dataset is None else eval_dataset)
        if not families:
            raise SettingError("eval_dataset: there is no family to evaluate on.")
        world, rank = self.args.world_size, self.args.process_index
        batches = [range(start, min(start + world, len(families))) for start in range(0, len(families), world)]
        return self._loader(families, [take_process_share(batch, None, rank, world) for batch in batches])

    def _longest_scores_of_first_update(self) -> list[SpanScore]:
        families: FamilyDataset = self.train_dataset
        builder = self._build_forests(families, ScoringStrategy.TREE, self.args.tokens_per_forward)
        order = order_epoch_families(families.ids, self.args.seed, 0)[: self.args.families_per_update]
        drawn = [builder[FamilyDraw(index, 0, 1.0)][1] for index in order]
        return max(drawn, key=lambda scores: max(len(score.path.ids) for score in scores))

    def _build_forests(self, families: FamilyDataset, strategy: ScoringStrategy, budget: int) -> ForestDataset:
        tokens = ScoredTokens(self.args.response_tokens)
        return ForestDataset(
            families=families,
            renderer=self.renderer,
            objective=self.objective,
            tokens=tokens,
            strategy=strategy,
            budget=budget,
            seed=self.args.seed,
        )

    def _loader(self, families: FamilyDataset, sampler: Any) -> DataLoader[Any]:
        budget = limit_forward_tokens(self.args.tokens_per_forward, self.choice.backend)
        builder = self._build_forests(families, self.choice.strategy, budget)
        return UpdateLoader(
            builder,  # type: ignore[arg-type]
            batch_sampler=sampler,
            collate_fn=builder.build_forests,
            num_workers=self.args.dataloader_num_workers,
            # A separate generator: loading must not advance the global one, which dropout may use.
            generator=torch.Generator().manual_seed(self.args.seed),
        )

    # ---- scores and loss ----

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:  # noqa: ARG002
        """Run forward and backward for every forest of an update; gradients are synchronised after the last one.

        Follows the step of Transformers once per forest, including optimizers with modes, the device cache, LOMO and
        DeepSpeed.
        """
        model.train()
        self._set_optimizer_mode("train")
        forests: list[FamilyForest] = self._equalise_count(inputs)
        total = torch.zeros((), device=self.args.device)
        for forest in forests:
            last = forest is forests[-1]
            # Accelerate and DDP keep separate flags for this; both must agree.
            self.accelerator.gradient_state._set_sync_gradients(last)
            synchronisation: AbstractContextManager[Any] = nullcontext() if last else self.accelerator.no_sync(model)
            with synchronisation:
                with self.compute_loss_context_manager():
                    loss = self._weighted_loss(model, forest)
                steps = self.args.torch_empty_cache_steps
                if steps is not None and self.state.global_step % steps == 0:
                    clear_device_cache()
                self.accelerator.backward(loss, **self._backward_options())
            total += loss.detach()
        return total

    def _set_optimizer_mode(self, mode: str) -> None:
        """Set the mode of an optimizer that has modes, as schedule-free ones do."""
        if callable(set_mode := getattr(self.optimizer, mode, None)):
            set_mode()

    def _backward_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.args.optim in (OptimizerNames.LOMO, OptimizerNames.ADALOMO):
            options["learning_rate"] = self._get_learning_rate()
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            options["scale_wrt_gas"] = False  # the loss is already normalised over the update
        return options

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Return the loss of an update's share in one graph."""
        losses = [self._weighted_loss(model, forest) for forest in inputs]
        loss = torch.stack(losses).sum()
        return (loss, {}) if return_outputs else loss

    def _weighted_loss(self, model: nn.Module, forest: FamilyForest) -> Tensor:
        weighted = []
        losses = compute_family_losses(model, forest, self.objective, self.choice)
        for weight, loss in zip(forest.weights, losses, strict=True):
            weighted.append(weight * loss.total)
            if weight:  # families of weight zero are not part of the update
                self._log_means.add_loss(loss)
        self._log_means.add_forest(forest)
        return torch.stack(weighted).sum()

    def _equalise_count(self, forests: list[FamilyForest]) -> list[FamilyForest]:
        """Append forests of weight zero until all processes have equally many.

        Processes that shard a model synchronise in every forward pass and would wait for each other forever.
        """
        if self.args.world_size == 1:
            return forests
        count = torch.tensor([len(forests)], device=self.args.device)
        most = int(self.accelerator.gather(count).max())
        return forests + [forests[-1].without_weight() for _ in range(most - len(forests))]

    # ---- evaluation and log ----

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,  # noqa: ARG002
        prediction_loss_only: bool | None = None,  # noqa: ARG002
        ignore_keys: list[str] | None = None,  # noqa: ARG002
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Return loss, margins and switch rates of held-out families."""
        # Training means since the last log line stay apart from those of the evaluation.
        training_means, self._log_means = self._log_means, TrainingLogMeans()
        model = self.model_wrapped
        # Outside of training the model has not been wrapped for the precision and the devices of the run.
        if model is self.model and not self.is_in_train:
            model = self.accelerator.prepare_model(model, evaluation_mode=True)
        model.eval()
        self._set_optimizer_mode("eval")
        with torch.no_grad():
            for forests in dataloader:
                for forest in self._equalise_count(forests):
                    self._weighted_loss(model, forest)
        means = self._log_means.take(self.accelerator)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in means.items()}
        self._log_means = training_means
        families = len(dataloader.dataset)  # type: ignore[arg-type]
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics=metrics, num_samples=families)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add margins, accuracies and switch rates to a training line of the log."""
        if "loss" in logs:
            means = self._log_means.take(self.accelerator)
            means.pop("loss", None)  # the Trainer reports the loss itself
            logs |= means
        if "train_loss" in logs:
            logs["train_loss"] = self._average_logged_loss(logs["train_loss"])
        super().log(logs, start_time)

    def _average_logged_loss(self, session_loss: float) -> float:
        """Return the mean loss of the updates in the log: that of Transformers leaves out what earlier sessions did."""
        step, total = 0, 0.0
        for line in self.state.log_history:
            if "loss" in line:
                total, step = total + (line["step"] - step) * line["loss"], int(line["step"])
        return total / step if step else session_loss

    def floating_point_ops(self, inputs: Any) -> int:
        """Return the operations of an update: 2 per parameter and token forward, 4 backward."""
        parameters: int = sum(parameter.numel() for parameter in self.model.parameters())
        tokens: int = sum(forest.tokens for forest in inputs)
        return 6 * parameters * tokens

    # ---- checkpoints ----

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            (folder / COMPLETE_MARKER_FILE).unlink(missing_ok=True)
        # Older checkpoints are removed only once this one is complete: with a limit of one, a crash in between would
        # leave none.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        super()._save_checkpoint(model, trial)
        self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save and folder.is_dir():
            # Written again, because the settings were saved while the limit was unset.
            (folder / "training_args.json").write_text(_json(self.args), encoding="utf-8")
            with AtomicFile(folder / COMPLETE_MARKER_FILE) as file:
                marker = {"step": self.state.global_step, "epoch": self.state.epoch, "candidate": self._is_candidate()}
                file.write(json.dumps(marker).encode())
            remove_safety_checkpoints(folder, self.state.best_model_checkpoint)
            rotate_checkpoints(str(folder.parent), limit, self.state.best_model_checkpoint, use_mtime=True)

    def _is_candidate(self) -> bool:
        """Return whether a checkpoint of this update is compared by selection: at ends of epochs and of training."""
        complete_epoch = float(self.state.epoch or 0).is_integer()
        best = self.args.save_strategy == SaveStrategy.BEST and not self.control.should_training_stop
        return complete_epoch or best or self.state.global_step >= self.state.max_steps

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        # Transformers 5.23 calls this in every process; before, in the one that writes alone.
        if not self.args.should_save:
            return
        folder = Path(output_dir or str(self.args.output_dir))
        # Settings as JSON: a pickle is neither readable nor safe to open.
        (folder / "training_args.bin").unlink(missing_ok=True)  # written by Transformers
        (folder / "training_args.json").write_text(_json(self.args), encoding="utf-8")
        (folder / "README.md").write_text(render_model_card(self, self.recipe), encoding="utf-8")
        if self.recipe:
            (folder / CHECKPOINT_RECIPE_FILE).write_text(
                json.dumps(self.recipe, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )


def _choose_scoring(model: Any, args: EClosureConfig, find_scores: Callable[[], Sequence[SpanScore]]) -> ScoringChoice:
    """Return how the model is scored, as the first process determines by checking it.

    Where weights are sharded later, other processes may have none yet, and the first has them on its CPU; the backend
    then follows the device of training. Where weights are partitioned already, no process can check them.
    """
    # DeepSpeed ZeRO-3 splits weights while they are loaded; each is empty until it is gathered.
    if any(hasattr(weight, "ds_id") and not weight.numel() for weight in model.parameters()):
        return _choose_unchecked(args)
    strategy: Any = args.strategy
    backend: Any = args.backend
    # Columns would pass the check on the CPU, where the weights still are, and then run on the GPU unchecked.
    if backend == AUTO and args.device.type != "cpu" and next(model.parameters()).device.type == "cpu":
        backend = AttentionBackend.SDPA
    # One process decides for all: measurements may differ between processes, and all must score alike.
    choices: list[ScoringChoice | None] = [None]
    if args.process_index == 0:
        choice = choose_scoring_strategy(model, strategy, backend, max_length=args.max_length)
        # Weights that will be sharded over GPUs are still on the CPU, where a family would take minutes.
        if choice.strategy is ScoringStrategy.TREE and next(model.parameters()).device.type == args.device.type:
            choice = confirm_on_family(model, choice, find_scores(), strategy)
        choices = [choice]
    if args.world_size > 1:
        broadcast_object_list(choices)
    (chosen,) = choices
    assert chosen is not None
    if args.process_index:
        set_model_attention(model, chosen.backend)
    return chosen


def _choose_unchecked(args: EClosureConfig) -> ScoringChoice:
    reason = "ZeRO-3 split the weights while they were loaded, so a tree cannot be tried on them"
    launch = "accelerate launch --config_file packages/eclose-train/recipes/accelerate/deepspeed_zero3.yaml"
    if args.strategy == ScoringStrategy.TREE:
        raise SettingError(f"strategy = tree: {reason}. Leave --deepspeed out and start with: {launch}")
    strategy = ScoringStrategy.DEDUP if args.strategy == AUTO else ScoringStrategy(args.strategy)
    message = f"scored path by path, not by tree: {reason}. For trees leave --deepspeed out and start with: {launch}"
    return ScoringChoice(strategy, AttentionBackend.SDPA, message)


def _as_dataset(dataset: Any) -> Any:
    return dataset if dataset is None or hasattr(dataset, "ids") else FamilyList(dataset)


def _add_adapter(model: Any, peft_config: Any) -> Any:
    """Return the model with a new adapter; raise where the configuration does not fit the model."""
    from peft import get_peft_model  # noqa: PLC0415 - only where an adapter is trained

    try:
        with ignore_renamed_property():
            return get_peft_model(model, peft_config)
    except ValueError as error:
        raise SettingError(f"peft_config: {error}") from error


def check_processes(args: EClosureConfig) -> None:
    """Raise where the number of processes is not the one asked for, or one process has several GPUs."""
    if args.processes is not None and args.world_size != args.processes:
        raise SettingError(
            f"processes = {args.processes}, but {args.world_size} started. On CPUs `accelerate launch` always starts "
            f"one process: use ACCELERATE_USE_CPU=true torchrun --nproc_per_node {args.processes} instead."
        )
    if args.n_gpu > 1:
        raise SettingError(
            f"{args.n_gpu} GPUs in one process: families cannot be split between them. Start one process for each with "
            f"torchrun --nproc_per_node {args.n_gpu}, or set CUDA_VISIBLE_DEVICES to a single GPU."
        )


def _json(args: EClosureConfig) -> str:
    text: str = args.to_json_string()  # type: ignore[no-untyped-call]
    return text
