"""Losses of the families of a forest, scored in one forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.likelihood.score import mean_logprobs, score_tree

if TYPE_CHECKING:
    from torch import nn

    from eclose.likelihood.exactness_check import ScoringChoice
    from eclose.training.batching import FamilyForest
    from eclose.training.objective import FamilyLoss, TrainingObjective


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
