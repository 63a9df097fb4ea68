"""Trainers of TRL as baselines: its own DPO and SimPO, with the families, adapters and run folder of this package."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from datasets import Dataset  # type: ignore[import-untyped]
from jinja2 import TemplateError
from transformers import TrainingArguments
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from eclose.errors import SettingError
from eclose.models.load_weights import render_conversation
from eclose.protocol.response_prompt import PromptOrder, ResponsePrompt
from eclose.training.baselines.preference_pairs import EpochPairSampler, list_preference_rows
from eclose.training.config import DEFAULT_PREFERENCE_BETA, PAIRS_PER_FAMILY, BaselineMethod, TrackedArguments
from eclose.training.row_formats import ExportedEdits
from eclose.training.trainer import RunTrainer, check_processes

with warnings.catch_warnings():
    # TRL warns at every import of its experimental part, where SimPO lives in version 1.
    warnings.simplefilter("ignore")
    from trl.experimental.cpo import CPOConfig, CPOTrainer

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from transformers.trainer_utils import EvalLoopOutput

    from eclose.training.batching import FamilyDataset
    from eclose.training.config import EClosureConfig

_SLACK_TOKENS = 64
"""Room behind the longest admitted path: templates write a line break behind a turn. TRL must never truncate."""


class _DpoArguments(TrackedArguments, DPOConfig):
    """Arguments of DPO that trackers log with the identity of the run."""


class _SimpoArguments(TrackedArguments, CPOConfig):
    """Arguments of SimPO that trackers log with the identity of the run."""


class BaselineTrainer(RunTrainer):
    """What the trainers of TRL get from this package: order of families, reply evaluation, run folder."""

    sampler: EpochPairSampler

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochPairSampler:  # noqa: ARG002
        return self.sampler

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Return TRL's figures of the held-out pairs, and those of the replies."""
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        output.metrics.update(self._evaluate_replies(metric_key_prefix))  # type: ignore[union-attr]
        return output

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write nothing: each checkpoint has the card of this package, which names TRL."""


class DpoTrainer(BaselineTrainer, DPOTrainer):
    """DPO (Rafailov et al., 2023); the reference is the model without its adapter."""


class SimpoTrainer(BaselineTrainer, CPOTrainer):
    """SimPO (Meng et al., 2024), which TRL implements as a loss of its CPO trainer."""


def build_baseline_trainer(
    model: Any,
    config: EClosureConfig,
    families: FamilyDataset,
    held_out: FamilyDataset | None = None,
    *,
    processing_class: Any,
    peft_config: Any = None,
    callbacks: Any = None,
) -> BaselineTrainer:
    """Return TRL's trainer of a baseline.

    Args:
        model: A causal language model of Transformers.
        config: Settings of the run; ``method`` is ``dpo`` or ``simpo``.
        families: Families to train on.
        held_out: Families to evaluate on.
        processing_class: The model's tokenizer.
        peft_config: Configuration of a new adapter; None trains all weights.
        callbacks: Callbacks of Transformers.

    Raises:
        SettingError: Pairs cannot be split between processes, or TRL would render other prompts.
    """
    check_processes(config)
    method = BaselineMethod(config.method)
    prompt = ResponsePrompt(config.demonstrations, PromptOrder(config.order))
    rows = list(list_preference_rows(families, prompt, ExportedEdits.ALL))
    _require_same_rendering(processing_class, rows[0])
    arguments: dict[str, Any] = {
        "model": model,
        "train_dataset": Dataset.from_list(rows),
        "eval_dataset": None if held_out is None else _evaluation_rows(held_out, prompt),
        "processing_class": processing_class,
        "peft_config": peft_config,
        "callbacks": callbacks,
    }
    settings = _trl_settings(config)
    trainer: BaselineTrainer
    if method is BaselineMethod.DPO:
        # TRL would load the reference of a model without adapter by its name, and so without its pinned commit.
        reference = deepcopy(model) if peft_config is None else None
        trainer = DpoTrainer(args=_DpoArguments(**settings), ref_model=reference, **arguments)
    else:
        # Without the generation loss that CPO adds to it, the loss is SimPO's.
        loss: dict[str, Any] = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": config.simpo_gamma}
        trainer = SimpoTrainer(args=_SimpoArguments(**settings, **loss), **arguments)
    trainer.sampler = EpochPairSampler(families, config.seed)
    trainer._prepare_run(config, held_out, len(families))
    return trainer


def _evaluation_rows(held_out: FamilyDataset, prompt: ResponsePrompt) -> Dataset:
    return Dataset.from_list(list(list_preference_rows(held_out, prompt, ExportedEdits.FIRST)))


def _trl_settings(config: EClosureConfig) -> dict[str, Any]:
    """Return the settings of TRL's configuration: all fields of ``TrainingArguments``, and those of both losses."""
    update, forward = PAIRS_PER_FAMILY * config.families_per_update, config.pairs_per_forward * config.world_size
    if update % forward:
        raise SettingError(
            f"pairs_per_forward = {config.pairs_per_forward}: an update has {update} pairs, which "
            f"{config.world_size} x {config.pairs_per_forward} do not divide. Choose 1, 2 or 4, and "
            "families_per_update as a multiple of the processes."
        )
    beta = config.preference_beta
    return {
        **{field.name: getattr(config, field.name) for field in fields(TrainingArguments) if field.init},
        "per_device_train_batch_size": config.pairs_per_forward,
        "per_device_eval_batch_size": config.pairs_per_forward,
        # Equal parts: the mean over the parts is the mean over the pairs of the update.
        "gradient_accumulation_steps": update // forward,
        "max_length": config.max_length + _SLACK_TOKENS,
        "beta": DEFAULT_PREFERENCE_BETA[BaselineMethod(config.method)] if beta is None else beta,
    }


def _require_same_rendering(tokenizer: Any, row: dict[str, Any]) -> None:
    """Raise where TRL would render a prompt in other words than generation and evaluation do."""
    expected = render_conversation(tokenizer, row["prompt"])
    options = {"add_generation_prompt": True, "tokenize": False, **row["chat_template_kwargs"]}
    try:
        rendered = tokenizer.apply_chat_template(list(row["prompt"]), **options)
    except TemplateError:
        rendered = None
    if rendered != expected:
        raise SettingError(
            "method: TRL cannot render the prompt as this package does, because the chat template has no system role. "
            "Use a model whose template has one."
        )
