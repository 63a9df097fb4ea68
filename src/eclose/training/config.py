"""Settings of training: a ``TrainingArguments`` with the paper's values, and the settings this package adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainingArguments

from eclose.core.edges import Edge
from eclose.errors import SettingError
from eclose.likelihood.score import AttentionBackend, ScoringStrategy
from eclose.likelihood.spans import CountedTokens
from eclose.protocol.response_prompt import Order
from eclose.training.objective import Hinge, Method

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AUTO = "auto"
_REFUSED = {
    "gradient_accumulation_steps": (
        1,
        "an update takes families_per_update families, whatever the hardware; "
        "set that, and tokens_per_forward to what fits into memory",
    ),
    "neftune_noise_alpha": (
        None,
        "noise would be shared by all paths through a token and scaled by the forest; leave it out",
    ),
    "label_smoothing_factor": (0.0, "the objectives score the tokens of a response as they are; leave it at 0"),
    "auto_find_batch_size": (False, "set tokens_per_forward to what fits into memory"),
    "data_seed": (None, "order and edits are drawn from seed alone; set that"),
}
"""Settings of a Trainer that cannot work here, with the only value they may have and what to do instead."""


def _ours(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class EClosureConfig(TrainingArguments):
    """Everything that decides a run, apart from model and data.

    Defaults are the paper's where its appendix D.4 has a value. The prompt (``demonstrations``, ``order``) is in the
    paper's code release alone, and on ``response_tokens`` the paper says two things (decision 0036).
    """

    _VALID_DICT_FIELDS = (*TrainingArguments._VALID_DICT_FIELDS, "target_margin", "smoothing")  # type: ignore[assignment]

    method: str = _ours("e_closure", f"What is trained for: {', '.join(Method)}.")
    margin_weight: float = _ours(1.0, "lambda: the weight of all margins together, beside the generation loss.")
    target_margin: float | dict[str, float] = _ours(  # noqa: RUF009
        0.5, 'gamma: how far a comparison is to be won; one number, or one per edge: {"S": 0.5, "T": 0.5, "C": 0.5}.'
    )
    smoothing: float | dict[str, float] = _ours(  # noqa: RUF009
        0.1, "beta: how soft the hinge is; one number, or one per edge."
    )
    response_tokens: str = _ours(
        "full",
        "Tokens of a whole response that count: full (layout and end of turn too) or content (steps and answer alone). "
        "The paper can be read either way.",
    )
    families_per_update: int = _ours(8, "Families in one optimizer update, over all processes together.")
    tokens_per_forward: int = _ours(
        16_384, "Tokens of one forward at most; an update is split into as many as it takes. Changes no result."
    )
    max_length: int = _ours(8_192, "Longest path in tokens. A family that does not fit is set aside, never cut.")
    demonstrations: int = _ours(2, "Worked examples in the prompt; generation must use the same number.")
    order: str = _ours("evidence_first", "What comes first in the prompt: evidence_first or question_first.")
    strategy: str = _ours(AUTO, "auto, tree, dedup or naive: how much of a family's work is shared.")
    backend: str = _ours(AUTO, "auto, sdpa, columns or flex: how attention follows a tree.")
    processes: int | None = _ours(None, "How many processes this run is meant to have; another number is refused.")

    # What the paper sets otherwise than Transformers does.
    num_train_epochs: float = _ours(5.0, "Passes over the families.")
    warmup_steps: float = _ours(50, "Updates over which the learning rate rises.")
    bf16: bool | None = _ours(  # type: ignore[assignment]
        None,
        "bfloat16 mixed precision; where it is not said, wherever a GPU offers it.",
    )
    gradient_checkpointing: bool = _ours(
        True, "Compute activations again in the backward pass instead of keeping them."
    )
    save_strategy: str = _ours("epoch", "When a checkpoint is written; every one is a candidate for selection.")
    logging_steps: float = _ours(10, "Updates between two lines of the log.")
    remove_unused_columns: bool = _ours(False, "Families have no columns to remove.")

    def __post_init__(self) -> None:
        """Resolve defaults that depend on the machine; refuse everything that cannot work, at once."""
        if self.bf16 is None:
            self.bf16 = not self.use_cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        if self.gradient_checkpointing and self.gradient_checkpointing_kwargs is None:
            self.gradient_checkpointing_kwargs = {"use_reentrant": False}
        problems = []
        try:
            super().__post_init__()  # type: ignore[no-untyped-call]
        except ValueError as refused:
            problems = [" ".join(str(refused).split())]
        if problems := [*problems, *self._problems()]:
            raise SettingError("; ".join(problems))

    def hinges(self) -> dict[str, Hinge]:
        """Return the hinge of each edge, and of whole responses."""
        return {
            name: Hinge(_per_edge(self.target_margin, name), _per_edge(self.smoothing, name))
            for name in (*(edge.value for edge in Edge), "response")
        }

    def _problems(self) -> Iterator[str]:
        choices = {
            "method": Method,
            "response_tokens": CountedTokens,
            "order": Order,
            "strategy": (AUTO, *ScoringStrategy),
            "backend": (AUTO, *AttentionBackend),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in list(allowed):
                yield f"{name} = {getattr(self, name)!r}: choose one of {', '.join(allowed)}"
        for name in ("families_per_update", "tokens_per_forward", "max_length"):
            if getattr(self, name) < 1:
                yield f"{name} = {getattr(self, name)}: must be at least 1"
        for name in ("target_margin", "smoothing"):
            yield from _edge_problems(name, getattr(self, name))
        if self.margin_weight < 0:
            yield f"margin_weight = {self.margin_weight}: must not be negative"
        for name, (value, advice) in _REFUSED.items():
            if getattr(self, name) != value:
                yield f"{name}: {advice}"


def _per_edge(value: float | Mapping[str, float], edge: str) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    # Whole responses belong to no edge; they take what the edges have in common, which is the first of them.
    return float(value.get(edge, next(iter(value.values()))))


def _edge_problems(name: str, value: Any) -> Iterator[str]:
    edges = [edge.value for edge in Edge]
    if isinstance(value, dict):
        if sorted(value) != sorted(edges):
            yield f"{name}: one number for each of {', '.join(edges)}, not for {', '.join(map(str, value)) or 'none'}"
        numbers = list(value.values())
    else:
        numbers = [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not number > 0:
            yield f"{name} = {number!r}: must be a positive number"
