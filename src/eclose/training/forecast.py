"""Forecast of a training run without its weights: families, updates, tokens and trained parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.family import Family
from eclose.likelihood.score import AttentionBackend, ScoringStrategy, limit_forward_tokens
from eclose.likelihood.spans import ScoredTokens
from eclose.models.load_weights import build_empty_model, ignore_renamed_property
from eclose.store.records.jsonl import ReadRecord
from eclose.store.records.outcome_counts import RecordCounts
from eclose.training.batching import ForestDataset, UpdateSampler
from eclose.training.config import AUTO
from eclose.training.objective import TrainingMethod, build_objective

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose.likelihood.render import TokenPathRenderer
    from eclose.training.batching import FamilyDataset
    from eclose.training.config import EClosureConfig
    from eclose.training.recipe import TrainedModelSettings

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
        families,
        renderer,
        build_objective(TrainingMethod(config.method), config.margin_weight, config.hinges()),
        ScoredTokens(config.response_tokens),
        strategy,
        limit_forward_tokens(config.tokens_per_forward, AttentionBackend.SDPA),
        config.seed,
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


def count_parameters(settings: TrainedModelSettings, build_adapter: Callable[[Any], Any]) -> tuple[int, int]:
    """Return the numbers of trained and of all parameters, from the model's configuration alone."""
    from peft import get_peft_model  # noqa: PLC0415 - only where an adapter is trained

    model = build_empty_model(settings.model, settings.revision)
    if (adapter := build_adapter(model)) is not None:
        with ignore_renamed_property():
            model = get_peft_model(model, adapter, low_cpu_mem_usage=True)
    counts = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    return sum(count for count, trained in counts if trained), sum(count for count, _ in counts)
