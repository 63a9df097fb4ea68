"""E-Closure inside a Trainer: which families, which comparisons, score, loss. Everything else is Transformers'."""

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
from transformers import Trainer, set_seed
from transformers.trainer_utils import EvalLoopOutput, rotate_checkpoints
from transformers.training_args import OptimizerNames

from eclose.errors import SettingError
from eclose.likelihood.exactness_check import ScoringChoice, choose_scoring, set_attention
from eclose.likelihood.render import Renderer
from eclose.likelihood.score import AttentionBackend, ScoringStrategy, limit_tokens, mean_logprobs, score_tree
from eclose.likelihood.spans import CountedTokens
from eclose.protocol.response_prompt import Order, ResponsePrompt
from eclose.store.records.atomic import AtomicFile
from eclose.training.batching import FamilyList, Planter, UpdateSampler, share
from eclose.training.checkpoints import COMPLETE, RECIPE
from eclose.training.config import AUTO
from eclose.training.log_means import Averages
from eclose.training.model_card import model_card
from eclose.training.objective import Method, objective
from eclose.training.progress import speak_plainly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from eclose.training.batching import Families, Forest
    from eclose.training.config import EClosureConfig
    from eclose.training.objective import Loss, Objective


class UpdateLoader(DataLoader[Any]):
    """A loader of updates that passes the epoch on to its sampler."""

    def set_epoch(self, epoch: int) -> None:
        """Begin another pass."""
        if isinstance(self.batch_sampler, UpdateSampler):
            self.batch_sampler.set_epoch(epoch)


class EClosureTrainer(Trainer):
    """Trains any of the paper's objectives on families, each in one forward where the model allows it."""

    # Our loss is normalised by the families of the whole update; nothing is left to be divided.
    loss_is_scaled_for_ga = True
    args: EClosureConfig
    model: Any
    train_dataset: Any

    def __init__(
        self,
        model: Any,
        args: EClosureConfig,
        train_dataset: Families | Sequence[Any],
        eval_dataset: Families | Sequence[Any] | None = None,
        processing_class: Any = None,
        peft_config: Any = None,
        **kwargs: Any,
    ) -> None:
        """As any Trainer; datasets are families, ``peft_config`` puts a fresh adapter on the model."""
        if processing_class is None:
            raise SettingError("processing_class: give the model's tokenizer.")
        _check_processes(args)
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = False  # every forward uses all of the model
        args.per_device_train_batch_size = ceil(args.families_per_update / args.world_size)
        if peft_config is not None:
            from peft import get_peft_model  # noqa: PLC0415 - only where an adapter is trained

            set_seed(args.seed)  # the adapter's first values belong to the run
            try:
                model = get_peft_model(model, peft_config)
            except ValueError as refused:
                raise SettingError(f"peft_config: {refused}") from refused
        if args.gradient_checkpointing and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
        super().__init__(
            model=model,
            args=args,
            train_dataset=_families(train_dataset),
            eval_dataset=_families(eval_dataset),
            processing_class=processing_class,
            **kwargs,
        )
        self.objective: Objective = objective(Method(args.method), args.margin_weight, args.hinges())
        prompt = ResponsePrompt(args.demonstrations, Order(args.order))
        self.renderer = Renderer(processing_class, prompt, args.max_length)
        with self.accelerator.autocast():  # the trial runs in the precision that will train
            self.choice = _settled(self.model, args)
        if self.choice.message and args.process_index == 0:
            warnings.warn(self.choice.message, stacklevel=2)
        self.recipe: dict[str, Any] = {}
        """Every setting and input of the run, where there is one: kept beside each adapter and shown on its card."""
        self._averages = Averages()
        speak_plainly(self)

    # ---- which families ----

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Every batch is this process's share of one update."""
        families: Families = self.train_dataset
        sampler = UpdateSampler(
            families.ids,
            seed=self.args.seed,
            size=self.args.families_per_update,
            rank=self.args.process_index,
            world=self.args.world_size,
        )
        return self._loader(families, sampler)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Families in their order, one per process at a time."""
        families = _families(self.eval_dataset if eval_dataset is None else eval_dataset)
        if not families:
            raise SettingError("eval_dataset: there is no family to evaluate on.")
        world, rank = self.args.world_size, self.args.process_index
        turns = [range(start, min(start + world, len(families))) for start in range(0, len(families), world)]
        return self._loader(families, [share(turn, None, rank, world) for turn in turns])

    def _loader(self, families: Families, sampler: Any) -> DataLoader[Any]:
        planter = Planter(
            families,
            self.renderer,
            self.objective,
            CountedTokens(self.args.response_tokens),
            self.choice.strategy,
            limit_tokens(self.args.tokens_per_forward, self.choice.backend),
            self.args.seed,
        )
        return UpdateLoader(
            planter,  # type: ignore[arg-type]
            batch_sampler=sampler,
            collate_fn=planter.plant,
            num_workers=self.args.dataloader_num_workers,
            # A generator of its own: loading must not move the one the model might use.
            generator=torch.Generator().manual_seed(self.args.seed),
        )

    # ---- score, loss ----

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:  # noqa: ARG002
        """Run forward and backward for every forest of an update; gradients meet after the last.

        Follows the step of Transformers, once per forest: optimizers with a mode of their own, cache, LOMO, DeepSpeed.
        """
        model.train()
        self._set_optimizer_mode("train")
        forests: list[Forest] = self._as_many_everywhere(inputs)
        total = torch.zeros((), device=self.args.device)
        for forest in forests:
            last = forest is forests[-1]
            self.accelerator.gradient_state._set_sync_gradients(last)
            waiting: AbstractContextManager[Any] = nullcontext() if last else self.accelerator.no_sync(model)
            with waiting:
                with self.compute_loss_context_manager():
                    loss = self._weighted_loss(model, forest)
                self._empty_cache()
                self.accelerator.backward(loss, **self._backward_options())
            total += loss.detach()
        return total

    def _set_optimizer_mode(self, mode: str) -> None:
        """Tell an optimizer that has modes, as schedule-free ones do, which of them is needed."""
        if callable(switch := getattr(self.optimizer, mode, None)):
            switch()

    def _empty_cache(self) -> None:
        steps = self.args.torch_empty_cache_steps
        if steps is not None and self.state.global_step % steps == 0:
            clear_device_cache()

    def _backward_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.args.optim in (OptimizerNames.LOMO, OptimizerNames.ADALOMO):
            options["learning_rate"] = self._get_learning_rate()
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            options["scale_wrt_gas"] = False  # an update is not divided by its forwards
        return options

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """The loss of an update's share in one graph."""
        losses = [self._weighted_loss(model, forest) for forest in inputs]
        loss = torch.stack(losses).sum()
        return (loss, {}) if return_outputs else loss

    def _weighted_loss(self, model: nn.Module, forest: Forest) -> Tensor:
        weighted = []
        for weight, loss in zip(forest.weights, self._losses(model, forest), strict=True):
            weighted.append(weight * loss.total)
            if weight:
                self._averages.add(loss)
        self._averages.count(forest)
        return torch.stack(weighted).sum()

    def _losses(self, model: nn.Module, forest: Forest) -> list[Loss]:
        """The loss of every family of a forest."""
        if forest.tree is not None:
            values = score_tree(model, forest.tree, self.choice.backend)
        else:
            values = mean_logprobs(model, forest.scores, self.choice.strategy, self.choice.backend)
        losses = []
        for start, stop in forest.bounds:
            names = [score.name for score in forest.scores[start:stop]]
            losses.append(self.objective.loss(dict(zip(names, values[start:stop], strict=True))))
        return losses

    def _as_many_everywhere(self, forests: list[Forest]) -> list[Forest]:
        """Processes that shard a model meet in every forward, so all of them need equally many."""
        if self.args.world_size == 1:
            return forests
        count = torch.tensor([len(forests)], device=self.args.device)
        most = int(self.accelerator.gather(count).max())
        return forests + [forests[-1].without_weight() for _ in range(most - len(forests))]

    # ---- what is told ----

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,  # noqa: ARG002
        prediction_loss_only: bool | None = None,  # noqa: ARG002
        ignore_keys: list[str] | None = None,  # noqa: ARG002
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Loss, margins and switches of held-out families."""
        told, self._averages = self._averages, Averages()
        model = self.model_wrapped
        if model is self.model and not self.is_in_train:
            model = self.accelerator.prepare_model(model, evaluation_mode=True)
        model.eval()
        self._set_optimizer_mode("eval")
        with torch.no_grad():
            for forests in dataloader:
                for forest in self._as_many_everywhere(forests):
                    self._weighted_loss(model, forest)
        metrics = {
            f"{metric_key_prefix}_{name}": value for name, value in self._averages.take(self.accelerator).items()
        }
        self._averages = told
        families = len(dataloader.dataset)  # type: ignore[arg-type]
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics=metrics, num_samples=families)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add to a training step's line what the families said."""
        if "loss" in logs:
            told = self._averages.take(self.accelerator)
            told.pop("loss", None)  # the Trainer's own
            logs |= told
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:
        """Operations of an update's forward and backward."""
        parameters: int = sum(parameter.numel() for parameter in self.model.parameters())
        tokens: int = sum(forest.tokens for forest in inputs)
        return 6 * parameters * tokens

    # ---- what is kept ----

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            (folder / COMPLETE).unlink(missing_ok=True)
        # Older checkpoints go only when this one is whole: with a limit of one there would be none for a moment.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        super()._save_checkpoint(model, trial)
        self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save and folder.is_dir():
            # Again, for the limit was not among the settings while they were written.
            (folder / "training_args.json").write_text(_json(self.args), encoding="utf-8")
            with AtomicFile(folder / COMPLETE) as file:
                file.write(json.dumps({"step": self.state.global_step, "epoch": self.state.epoch}).encode())
            rotate_checkpoints(str(folder.parent), limit, self.state.best_model_checkpoint, use_mtime=True)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        folder = Path(output_dir or str(self.args.output_dir))
        # A pickle of settings is neither readable nor safe to open; JSON is both.
        (folder / "training_args.bin").unlink(missing_ok=True)
        (folder / "training_args.json").write_text(_json(self.args), encoding="utf-8")
        (folder / "README.md").write_text(
            model_card(self, recipe=self.recipe, scoring=self.choice.name), encoding="utf-8"
        )
        if self.recipe:
            (folder / RECIPE).write_text(json.dumps(self.recipe, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _settled(model: Any, args: EClosureConfig) -> ScoringChoice:
    """Return how the model is scored, as the first process finds by trying.

    Where weights are sharded later, other processes may have none to try yet, and the first has them on its CPU: what
    counts then is where the model will run. Where they are partitioned already, no process can try anything.
    """
    if _partitioned(model):
        return _untried(args)
    strategy: Any = args.strategy
    backend: Any = args.backend
    if backend == AUTO and args.device.type != "cpu" and next(model.parameters()).device.type == "cpu":
        backend = AttentionBackend.SDPA
    choices = [choose_scoring(model, strategy, backend) if args.process_index == 0 else None]
    if args.world_size > 1:
        broadcast_object_list(choices)
    (choice,) = choices
    assert choice is not None
    if args.process_index:
        set_attention(model, choice.backend)
    return choice


def _partitioned(model: Any) -> bool:
    """Return whether DeepSpeed ZeRO-3 split the weights while they were loaded; each is empty until it is gathered."""
    return any(hasattr(weight, "ds_id") and not weight.numel() for weight in model.parameters())


def _untried(args: EClosureConfig) -> ScoringChoice:
    reason = "ZeRO-3 split the weights while they were loaded, so a tree cannot be tried on them"
    launch = "accelerate launch --config_file recipes/accelerate/deepspeed_zero3.yaml"
    if args.strategy == ScoringStrategy.TREE:
        raise SettingError(f"strategy = tree: {reason}. Leave --deepspeed out and start with: {launch}")
    strategy = ScoringStrategy.DEDUP if args.strategy == AUTO else ScoringStrategy(args.strategy)
    message = f"scored path by path, not by tree: {reason}. For trees leave --deepspeed out and start with: {launch}"
    return ScoringChoice(strategy, AttentionBackend.SDPA, message)


def _families(dataset: Any) -> Any:
    return dataset if dataset is None or hasattr(dataset, "ids") else FamilyList(dataset)


def _check_processes(args: EClosureConfig) -> None:
    if args.processes is not None and args.world_size != args.processes:
        raise SettingError(
            f"processes = {args.processes}, but {args.world_size} started. On CPUs `accelerate launch` starts one "
            "whatever it is told: use ACCELERATE_USE_CPU=true torchrun --nproc_per_node "
            f"{args.processes} instead."
        )
    if args.n_gpu > 1:
        raise SettingError(
            f"{args.n_gpu} GPUs in one process: families cannot be split between them. Start one process for each with "
            f"torchrun --nproc_per_node {args.n_gpu}, or show this one a single GPU."
        )


def _json(args: EClosureConfig) -> str:
    text: str = args.to_json_string()  # type: ignore[no-untyped-call]
    return text
