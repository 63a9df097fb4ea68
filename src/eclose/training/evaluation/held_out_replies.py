"""Replies of the model under training to the inputs of held-out families: accuracy, and TRR and LGG by a judge.

Replies are generated greedily from the weights in memory, with the code of ``eclose select``. Those of an evaluation
are written as the folder of a run, ``evaluation/update-N``, which ``eclose judge`` and ``eclose diagnose`` read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from eclose.core.family import Family
from eclose.core.instance import Instance
from eclose.core.response import Response, ResponseSource
from eclose.models.interface import Decoding, FinishReason
from eclose.models.local.transformers_model import TransformersModel
from eclose.protocol.response_prompt import ResponsePrompt
from eclose.store.records.jsonl import write_records
from eclose.store.runs.folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.training.batching import order_epoch_families
from eclose.training.reply_cache import (
    CheckpointQuestion,
    CheckpointReply,
    build_checkpoint_questions,
    list_checkpoint_views,
)
from eclose.training.run_page import REPLY_METRICS_PREFIX
from eclose.training.select import CheckpointAccuracy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.family import ViewKind
    from eclose.training.batching import FamilyDataset

EVALUATION_FOLDER = "evaluation"
"""Folder of a training run with the replies of every evaluation."""


@dataclass(frozen=True)
class HeldOutReplyEvaluator:
    """Generates and scores the replies of a model to some held-out families, three inputs each."""

    families: Sequence[Family]
    prompt: ResponsePrompt
    max_new_tokens: int
    folder: Path
    """Folder of the training run."""
    judge: Callable[[Path, int], Mapping[str, float]] | None = None
    """Returns the figures of a folder with a number of replies; None where replies are not judged."""

    @property
    def questions(self) -> list[CheckpointQuestion]:
        """The inputs, as ``eclose select`` asks them."""
        decoding = Decoding(max_tokens=self.max_new_tokens)
        return [item for family in self.families for item in build_checkpoint_questions(family, self.prompt, decoding)]

    def evaluate(self, model: Any, tokenizer: Any, source: ResponseSource, step: int) -> dict[str, float]:
        """Return the figures of a model by name; its state and all random numbers are as before.

        Args:
            model: The model under training, with its adapter if it has one.
            tokenizer: The model's tokenizer.
            source: Backbone, method and seed that the replies name as their source.
            step: Number of updates so far.
        """
        questions = self.questions
        with keep_random_state(model.device), _generating(model) as base:
            replier = TransformersModel.of(base, tokenizer, source.model)
            # Set for training, where it would be wasted; without a cache every token would cost a whole forward pass.
            base.generation_config.use_cache = True
            replies = [
                CheckpointReply.of(question, reply)
                for question, reply in zip(
                    questions, replier.complete_all([item.request for item in questions]), strict=True
                )
            ]
            run = self.folder / EVALUATION_FOLDER / f"update-{step}"
            self._write(run, replies, source)
            figures = _match(questions, replies)
            if self.judge is not None:
                figures |= self.judge(run, len(replies))
        return {REPLY_METRICS_PREFIX + name: value for name, value in figures.items()}

    def _write(self, run: Path, replies: Sequence[CheckpointReply], source: ResponseSource) -> None:
        """Write questions and replies as the folder of a run."""
        run.mkdir(parents=True, exist_ok=True)
        write_records(run / INSTANCES_FILE, (item for family in self.families for item in _instances(family)))
        write_records(
            run / RESPONSES_FILE,
            (
                Response.from_completion(
                    f"{_instance_id(reply.family_id, reply.view)}-{run.name}",
                    _instance_id(reply.family_id, reply.view),
                    reply.text,
                    source,
                    cut_off=reply.finish is not FinishReason.STOP,
                )
                for reply in replies
            ),
        )


def choose_held_out_families(families: FamilyDataset, count: int) -> list[Family]:
    """Return a number of families that depends neither on their order nor on the seed of training, in their order."""
    chosen = order_epoch_families(families.ids, 0, 0)[:count]
    return [families[index] for index in sorted(chosen)]


def _match(questions: Sequence[CheckpointQuestion], replies: Sequence[CheckpointReply]) -> dict[str, float]:
    accuracy = CheckpointAccuracy.of(questions, replies)
    by_input = {f"accuracy_{kind.value}": rate.value for kind, rate in accuracy.rates.items()}
    return {
        # The score of eclose select: half original, a quarter each edited.
        "accuracy": float(accuracy.score),
        **{name: value for name, value in by_input.items() if value is not None},
        "no_answer": accuracy.unanswered / accuracy.replies,
        "n": accuracy.replies,
    }


def _instance_id(family_id: str, view: ViewKind) -> str:
    return f"{family_id}-{view.value}"


def _instances(family: Family) -> Iterator[Instance]:
    """Yield the inputs of a family as questions."""
    for view, aliases in list_checkpoint_views(family):
        yield Instance(
            _instance_id(family.id, view.kind),
            view.question,
            view.evidence,
            view.answer,
            aliases,
            benchmark=family.source.benchmark,
            support_ids=view.support_ids,
        )


@contextmanager
def _generating(model: Any) -> Iterator[Any]:
    """Yield the model below an adapter, which stays active, and restore its generation settings afterwards."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    generation_config = base.generation_config
    try:
        yield base
    finally:
        base.generation_config = generation_config


@contextmanager
def keep_random_state(device: torch.device) -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch (CPU and the device) at the end of the context."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    on_accelerator = device.type not in ("cpu", "meta")
    options: dict[str, Any] = {"device_type": device.type} if on_accelerator else {}
    with torch.random.fork_rng(devices=[device.index or 0] if on_accelerator else [], **options):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
