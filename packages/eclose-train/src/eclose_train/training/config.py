"""Settings of training: Transformers' ``TrainingArguments`` with the paper's values, and settings of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainingArguments

from eclose.errors import SettingError
from eclose.prompts.response_prompt import PromptOrder
from eclose_train.families.comparisons import Edge
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.objective import MarginHinge, TrainingMethod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

AUTO = "auto"


_RENAMED = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Names that Transformers 5.23 replaced; recipes may use either, and earlier releases have only the first."""
_FIXED = {
    "gradient_accumulation_steps": (
        1,
        "an update has families_per_update families on any hardware; "
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
"""Settings of Transformers' Trainer that must keep a value here, with that value and what to do instead."""


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class EClosureConfig(TrainingArguments):
    """Settings of training, apart from model and data.

    Defaults are those of the paper where appendix D.4 has a value. The prompt (``demonstrations``, ``order``) is only
    in the paper's code release, and the paper is ambiguous about ``response_tokens`` (decision 0036).
    """

    # Transformers parses the text of these fields as JSON, which is how a command line passes one value per edge.
    _VALID_DICT_FIELDS = (*TrainingArguments._VALID_DICT_FIELDS, "target_margin", "smoothing")  # type: ignore[assignment]
    # Without annotation, or it would be taken for a setting.
    run_identity = MappingProxyType[str, Any]({})

    method: str = _setting("e_closure", f"Objective of training: {', '.join(TrainingMethod)}.")
    margin_weight: float = _setting(1.0, "lambda: weight of all margins together, relative to the generation loss.")
    target_margin: float | dict[str, float] = _setting(  # noqa: RUF009
        0.5, 'gamma: target margin in nats per token; one number, or one per edge: {"S": 0.5, "T": 0.5, "C": 0.5}.'
    )
    smoothing: float | dict[str, float] = _setting(  # noqa: RUF009
        0.1, "beta: smoothing of the hinge; one number, or one per edge."
    )
    response_tokens: str = _setting(
        "full",
        "Tokens of a response that count: full (also layout and end of turn) or content (steps and answer only). "
        "The paper can be read either way.",
    )
    families_per_update: int = _setting(8, "Families in one optimizer update, over all processes together.")
    tokens_per_forward: int = _setting(
        16_384, "Most tokens of a forward pass; an update is split into as many as needed. Changes no result."
    )
    max_length: int = _setting(
        8_192, "Longest path in tokens. A family with a longer path is left out, never truncated."
    )
    demonstrations: int = _setting(2, "Worked examples in the prompt; generation must use the same number.")
    order: str = _setting("evidence_first", "Order of the prompt: evidence_first or question_first.")
    strategy: str = _setting(AUTO, "Sharing of computation between the scores of a family: auto, tree, dedup or naive.")
    backend: str = _setting(AUTO, "Attention of tree scoring: auto, sdpa, columns or flex.")
    processes: int | None = _setting(None, "Number of processes this run must have; the run stops if it has another.")

    # Settings of Transformers with other defaults: those of the paper, or what families need.
    num_train_epochs: float = _setting(5.0, "Passes over the families.")
    warmup_steps: float = _setting(50, "Updates over which the learning rate rises.")
    bf16: bool | None = _setting(  # type: ignore[assignment]
        None,
        "bfloat16 mixed precision; by default on GPUs that support it.",
    )
    gradient_checkpointing: bool = _setting(
        True, "Compute activations again in the backward pass instead of storing them."
    )
    save_strategy: str = _setting(
        "epoch",
        "When a checkpoint is written. eclose select compares those at ends of epochs; with steps, those every "
        "save_steps updates are for safety alone, and the newest of them is kept.",
    )
    logging_steps: float = _setting(10, "Updates between two lines of the log.")
    remove_unused_columns: bool = _setting(False, "Families have no columns to remove.")

    def __post_init__(self) -> None:
        """Resolve defaults that depend on the machine, and raise one error with all problems."""
        if self.bf16 is None:
            self.bf16 = not self.use_cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        # What is given under the new name counts; else the new name takes over the old one, so there is no warning.
        for old, new in _RENAMED.items():
            if getattr(self, new, None) is not None:
                setattr(self, old, getattr(self, new))
        # The variant that PyTorch recommends; it does not need gradients on the inputs.
        if self.gradient_checkpointing and self.gradient_checkpointing_kwargs is None:
            self.gradient_checkpointing_kwargs = {"use_reentrant": False}
        for old, new in _RENAMED.items():
            if hasattr(self, new):
                setattr(self, new, getattr(self, old))
        problems = []
        try:
            super().__post_init__()  # type: ignore[no-untyped-call]
        except ValueError as error:
            problems = [" ".join(str(error).split())]
        # Transformers stops at its first problem, so its message is joined with those of the other settings.
        if problems := [*problems, *self._problems()]:
            raise SettingError("; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and the identity of the run; TensorBoard, W&B, MLflow and trackio log this."""
        settings: dict[str, Any] = super().to_dict()  # type: ignore[no-untyped-call]
        return {**settings, **self.run_identity}

    def hinges(self) -> dict[str, MarginHinge]:
        """Return the hinge of each edge, and of complete responses."""
        return {
            name: MarginHinge(_per_edge(self.target_margin, name), _per_edge(self.smoothing, name))
            for name in (*(edge.value for edge in Edge), "response")
        }

    def _problems(self) -> Iterator[str]:
        choices: dict[str, Iterable[str]] = {
            "method": TrainingMethod,
            "response_tokens": ScoredTokens,
            "order": PromptOrder,
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
        for name, (value, advice) in _FIXED.items():
            if getattr(self, name) != value:
                yield f"{name}: {advice}"


def _per_edge(value: float | Mapping[str, float], edge: str) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    # Complete responses belong to no edge; they take the value of the first edge, whatever the order of the keys.
    return float(value.get(edge, value[next(iter(Edge)).value]))


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
