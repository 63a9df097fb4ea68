"""The loss of families, also as a collator, a callable loss, and a mixin for Trainers of other libraries.

A batch gives the same loss and gradient as ``EClosureTrainer``. What differs is what surrounds it: the order of
families and the size of updates are those of the loop that the loss is mounted on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import TrainerCallback

from eclose.errors import UserError
from eclose.files.families import decode_family_row
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.family import Family, draw_edit, select_fixed_edit
from eclose_train.likelihood.exactness_check import choose_scoring_strategy, confirm_on_family
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.render import PathTooLongError, TokenPathRenderer
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    limit_forward_tokens,
    mean_logprobs,
    score_tree,
)
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.batching import FamilyDraw, FamilyForest, FamilyList, ForestDataset
from eclose_train.training.log import TrainingLogMeans
from eclose_train.training.objective import FamilyLoss, MarginHinge, TrainingMethod, TrainingObjective, build_objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from eclose_train.likelihood.exactness_check import ScoringChoice


def compute_family_losses(
    model: nn.Module, forest: FamilyForest, objective: TrainingObjective, choice: ScoringChoice
) -> list[FamilyLoss]:
    """Return the loss of every family of a forest, in its order."""
    if forest.tree is not None:
        values = score_tree(model, forest.tree, choice.backend)
    else:
        values = mean_logprobs(model, forest.scores, choice.strategy, choice.backend)
    losses = []
    # Names repeat from family to family, so each family's values are looked up in its own mapping.
    for start, stop in forest.bounds:
        names = [score.name for score in forest.scores[start:stop]]
        losses.append(objective.loss(dict(zip(names, values[start:stop], strict=True))))
    return losses


FAMILIES_KEY = "families"
"""Key of a batch under which the scores of its families are."""


@dataclass
class EClosureCollator:
    """Collator that renders families for ``EClosureLoss``; it runs in the workers of a data loader.

    Attributes:
        tokenizer: The model's tokenizer, with a chat template.
        method: The objective, such as ``e_closure`` or ``cf_sft``.
        margin_weight: lambda, the weight of all margins together.
        hinges: Hinge of every comparison, or by edge; the paper's by default.
        demonstrations: Worked examples in the prompt.
        order: What comes first in the prompt.
        max_length: Longest path in tokens.
        response_tokens: Tokens of a response that count: ``full`` or ``content``.
        seed: Seed of the choice between the evidence edits of a family.
        epoch: Epoch that determines the choice; None for the fixed edit of evaluation.

    Examples:
        >>> import eclose
        >>> eclose_train.EClosureCollator(tokenizer=None, method="sft").objective.anchors
        (<ViewKind.GOLD: 'Gold'>,)
    """

    tokenizer: Any
    method: TrainingMethod | str = TrainingMethod.E_CLOSURE
    margin_weight: float = 1.0
    hinges: Mapping[str, MarginHinge] | MarginHinge | None = None
    demonstrations: int = 2
    order: PromptOrder | str = PromptOrder.EVIDENCE_FIRST
    max_length: int = 8_192
    response_tokens: ScoredTokens | str = ScoredTokens.FULL
    seed: int = 42
    epoch: int | None = 0

    @cached_property
    def objective(self) -> TrainingObjective:
        """Anchors and margins of the method."""
        return build_objective(TrainingMethod(self.method), self.margin_weight, self.hinges)

    @cached_property
    def renderer(self) -> TokenPathRenderer:
        """Renderer of prompts and responses."""
        return TokenPathRenderer(
            self.tokenizer, ResponsePrompt(self.demonstrations, PromptOrder(self.order)), self.max_length
        )

    def __call__(self, rows: Sequence[Family | Mapping[str, Any]]) -> dict[str, Any]:
        """Return the scores of each family.

        Args:
            rows: Families, or rows of a table of families such as ``datasets.Dataset``.

        Raises:
            UserError: A row is no family, or a family has a path longer than ``max_length``.
        """
        families = [row if isinstance(row, Family) else decode_family_row(row) for row in rows]
        return {FAMILIES_KEY: [self._scores(family) for family in families]}

    def _scores(self, family: Family) -> list[Any]:
        edit = select_fixed_edit(family) if self.epoch is None else draw_edit(family, self.seed, self.epoch)
        tokens = ScoredTokens(self.response_tokens)
        try:
            return self.objective.scores(FamilyScores(family, edit, self.renderer, tokens))
        except PathTooLongError as error:
            raise UserError(f"family {family.id!r}: {error} Leave it out, or raise max_length.") from error


class EClosureLoss:
    """Loss of a batch of families: the mean over them, differentiable, for any training loop.

    Examples:
        >>> import eclose
        >>> callable(eclose_train.EClosureLoss)
        True
    """

    def __init__(
        self,
        model: Any,
        collator: EClosureCollator,
        *,
        tokens_per_forward: int = 16_384,
        strategy: ScoringStrategy | Literal["auto"] = "auto",
        backend: AttentionBackend | Literal["auto"] = "auto",
    ) -> None:
        """Check how the model can be scored, and set its attention accordingly.

        Args:
            model: A causal language model of Transformers, with its adapter if it has one, not wrapped for devices.
            collator: The collator of the batches.
            tokens_per_forward: Most tokens of a forward pass. Changes no result.
            strategy: How the scores of a family share computation.
            backend: Attention of tree scoring.
        """
        self.objective = collator.objective
        self.choice = choose_scoring_strategy(model, strategy, backend, max_length=collator.max_length)
        self._model, self._strategy, self._confirmed = model, strategy, False
        self._forests = ForestDataset(
            families=FamilyList(),
            renderer=collator.renderer,
            objective=collator.objective,
            tokens=ScoredTokens(collator.response_tokens),
            strategy=self.choice.strategy,
            budget=limit_forward_tokens(tokens_per_forward, self.choice.backend),
            seed=collator.seed,
        )

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Return the mean loss of the families of a batch.

        Args:
            model: The model, also where it is wrapped for several devices.
            batch: What the collator returned.
        """
        losses = [loss for forest in self.forests(batch) for loss in self.family_losses(model, forest)]
        return torch.stack([loss.total for loss in losses]).mean()

    def forests(self, batch: Mapping[str, Any]) -> list[FamilyForest]:
        """Return the families of a batch, grouped into forward passes."""
        scores = batch[FAMILIES_KEY]
        # Several processes would score families of different lengths, and might choose differently.
        if not self._confirmed and not torch.distributed.is_initialized():
            longest = max(scores, key=lambda family: max(len(score.path.ids) for score in family))
            self.choice = confirm_on_family(self._model, self.choice, longest, self._strategy)
            self._forests = replace(self._forests, strategy=self.choice.strategy)
        self._confirmed = True
        return self._forests.build_forests(
            [(FamilyDraw(index, None, 1 / len(scores)), family) for index, family in enumerate(scores)]
        )

    def family_losses(self, model: nn.Module, forest: FamilyForest) -> list[FamilyLoss]:
        """Return the loss of every family of a forest."""
        return compute_family_losses(model, forest, self.objective, self.choice)


class EClosureLossMixin:
    """Mixin that gives a Trainer of Transformers or TRL the loss on families.

    Put it before the Trainer: ``class Trainer(EClosureLossMixin, SFTTrainer)``. The Trainer's ``data_collator`` must be
    an ``EClosureCollator``, and its dataset must keep all columns (``remove_unused_columns=False``).

    Examples:
        >>> import eclose
        >>> hasattr(eclose_train.EClosureLossMixin, "compute_loss")
        True
    """

    accelerator: Any
    args: Any
    data_collator: Any
    model: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._closure_loss: EClosureLoss | None = None
        self._closure_means = TrainingLogMeans()
        self.add_callback(_EpochOfEdits(self))  # type: ignore[attr-defined]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 - a mean over families, not over tokens
    ) -> Any:
        """Return the mean loss of the families of a batch."""
        mounted = self._mount()
        totals = []
        for forest in mounted.forests(inputs):
            losses = mounted.family_losses(model, forest)
            totals += [loss.total for loss in losses]
            if self.model.training:
                self._closure_means.add_forest(forest)
                for loss in losses:
                    self._closure_means.add_loss(loss)
        mean = torch.stack(totals).mean()
        return (mean, {}) if return_outputs else mean

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Any,
        prediction_loss_only: bool,  # noqa: ARG002 - families have no labels to predict
        ignore_keys: list[str] | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, None, None]:
        """Return the loss of a batch of evaluation."""
        with torch.no_grad(), self.compute_loss_context_manager():  # type: ignore[attr-defined]
            loss: Tensor = self.compute_loss(model, inputs)
        return loss, None, None

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of evaluation, which uses the fixed edit of every family."""
        collator = self.data_collator
        self.data_collator = replace(collator, epoch=None)
        try:
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        finally:
            self.data_collator = collator

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add margins, accuracies and switch rates to a training line of the log."""
        if "loss" in logs:
            means = self._closure_means.take(self.accelerator)
            means.pop("loss", None)  # the Trainer reports the loss itself
            logs |= means
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _mount(self) -> EClosureLoss:
        if self._closure_loss is None:
            if not isinstance(self.data_collator, EClosureCollator):
                raise UserError("data_collator: families need an EClosureCollator. Pass data_collator=...")
            # In the precision of training, and at the first batch: the collator may be set after the Trainer is made.
            # An evaluation before training runs without gradients, which the check compares.
            with torch.enable_grad(), self.accelerator.autocast():
                self._closure_loss = EClosureLoss(self.model, self.data_collator)
        return self._closure_loss


class _EpochOfEdits(TrainerCallback):
    """Callback that passes the epoch on to the collator, which draws the evidence edit of each family by it."""

    def __init__(self, trainer: EClosureLossMixin) -> None:
        self._trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Set the epoch; a run that is resumed within an epoch draws the edits of that epoch."""
        self._trainer.data_collator.epoch = int(state.epoch or 0)
