"""A Transformers model in this process, for small runs: batched, greedy or sampled, with adapters on shared weights.

Padding is on the left and masked, and positions count from the first real token, so a greedy reply depends on its
request alone up to rounding: where two tokens are almost equally likely, another batch may choose the other. A sampled
reply with a seed draws from its own generator, independent of its batch. The publisher's generation settings
(temperature, repetition penalty) are ignored: the request holds all settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eclose.calls.local.chat_template import decode_reply_tokens, find_stop_ids, limit_new_tokens, tokenize_prompt
from eclose.calls.local.weights import (
    find_device,
    load_causal_model,
    load_tokenizer,
    probe_logits,
    refuse_unchanged_logits,
    require_adapter_weights,
)
from eclose.calls.model import Decoding, Reply, Request
from eclose.errors import UserError
from eclose.values.identity import hash_sort_key

BATCH_TOKENS = 32_768
"""Largest number of prompt and new tokens of a batch, padding included."""
# Stands in for the context of a model whose configuration names no limit.
_UNBOUNDED = 2**31
# CPU allocators raise a plain RuntimeError, so the message has to be searched.
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass
class SharedBaseModel:
    """The weights of a model and the adapters loaded on them; at most one adapter is active at a time."""

    model: Any
    _adapted: Any = None
    _names: dict[Path, str] = field(default_factory=dict)
    _attempts: int = 0

    def add(self, folder: Path) -> None:
        """Load an adapter once; raise where it does not fit the model or changes no prediction."""
        folder = folder.resolve()
        if folder in self._names:
            return
        require_adapter_weights(folder)
        # A name is never used twice: PEFT keeps the name of an adapter that failed to load.
        self._attempts += 1
        name = f"adapter{self._attempts}"
        try:
            self._load(folder, name)
        except (KeyError, RuntimeError, ValueError) as misfit:
            reason = str(misfit).splitlines()[0]
            raise UserError(f"{folder}: this adapter does not fit the model ({reason}).") from misfit
        # Only an adapter that passed is remembered, so a second call with a refused one is refused again.
        refuse_unchanged_logits(folder, self._prediction(None), self._prediction(name))
        self._names[folder] = name

    def using(self, folder: Path | None) -> AbstractContextManager[Any]:
        """Activate an adapter, or none, for the length of the context."""
        return self._active(None if folder is None else self._names[folder.resolve()])

    def _active(self, name: str | None) -> AbstractContextManager[Any]:
        if self._adapted is None:
            return nullcontext()
        if name is None:
            return self._adapted.disable_adapter()  # type: ignore[no-any-return]
        self._adapted.set_adapter(name, inference_mode=True)
        return nullcontext()

    def _load(self, folder: Path, name: str) -> None:
        from peft import PeftConfig, PeftModel  # noqa: PLC0415 - heavy

        if self._adapted is None:
            # In two steps: an adapter whose weights fail to load is registered already and stays switched off.
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            self._adapted = PeftModel(self.model, config, adapter_name=name)
        self._adapted.load_adapter(str(folder), adapter_name=name)
        self.model.eval()

    def _prediction(self, name: str | None) -> Tensor:
        with self._active(name):
            return probe_logits(self.model)


@dataclass(frozen=True)
class _Prompt:
    index: int
    ids: list[int]
    max_new: int
    """Largest number of new tokens."""
    decoding: Decoding
    draw: tuple[int, ...]
    """Replica, and the attempt where it is not the first: each is a draw of its own."""


@dataclass(frozen=True)
class TransformersModel:
    """A ``LocalBatchModel`` on Transformers; ``with_adapter`` returns another one on the same weights."""

    base: SharedBaseModel
    tokenizer: Any
    base_name: str
    stops: frozenset[int]
    adapter: Path | None = None
    context: int | None = None
    """Largest number of tokens of prompt and reply together; None for the model's own limit."""
    batch_tokens: int = BATCH_TOKENS
    progress: Callable[[int, int], None] = lambda _finished, _total: None
    """Called after each batch with the number of finished requests and of all requests."""

    @property
    def name(self) -> str:
        """Name of the base model, with ``+`` and the adapter's folder name where there is one."""
        return self.base_name if self.adapter is None else f"{self.base_name}+{self.adapter.name}"

    @classmethod
    def of(cls, model: Any, tokenizer: Any, name: str, **settings: Any) -> TransformersModel:
        """Wrap a loaded model. Of its generation settings only the end-of-turn tokens are used."""
        stops = find_stop_ids(tokenizer, model.generation_config)
        # Transformers takes every setting that a call leaves open from this object.
        model.generation_config = type(model.generation_config)()
        return cls(SharedBaseModel(model.eval()), tokenizer, name, stops, **settings)

    @classmethod
    def load(
        cls,
        name: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        **settings: Any,
    ) -> TransformersModel:
        """Load a model by name or folder, on the accelerator where there is one."""
        model = load_causal_model(name, revision=revision, dtype=dtype, device=device or find_device())
        return cls.of(model, load_tokenizer(name, revision), name, **settings)

    def with_adapter(self, folder: Path) -> TransformersModel:
        """Return this model with an adapter. The weights are shared, and this model is unchanged."""
        self.base.add(folder)
        return replace(self, adapter=folder)

    def complete_all(self, requests: Sequence[Request]) -> list[Reply]:
        """Return one reply per request, in order. Batches are halved where memory runs out."""
        queue = sorted(
            self._prompts(requests), key=lambda prompt: -len(prompt.ids)
        )  # longest first: a lack of memory shows at once
        replies: dict[int, Reply] = {}
        budget = self.batch_tokens
        while queue:
            batch = _fill(queue, budget)
            try:
                replies |= self._generate(batch)
            except (MemoryError, RuntimeError) as error:
                _raise_unless_splittable(error, batch)
                # The smaller budget holds for all remaining requests: another batch as large would fail too.
                budget = _count_tokens(batch) // 2
            else:
                del queue[: len(batch)]
                self.progress(len(replies), len(requests))
        return [replies[index] for index in range(len(requests))]

    def _prompts(self, requests: Sequence[Request]) -> list[_Prompt]:
        ids = [tokenize_prompt(self.tokenizer, request) for request in requests]
        config = self.base.model.config.get_text_config()
        context = getattr(config, "max_position_embeddings", None) or _UNBOUNDED
        limits = limit_new_tokens(ids, requests, context if self.context is None else min(context, self.context))
        draws = [(each.replica, each.attempt) if each.attempt else (each.replica,) for each in requests]
        return [
            _Prompt(index, ids[index], limits[index], request.decoding, draws[index])
            for index, request in enumerate(requests)
        ]

    def _generate(self, batch: list[_Prompt]) -> dict[int, Reply]:
        # Padding is masked on the left, and behind an end token on the right it is cut off, so any token serves.
        pad = min(self.stops)
        # ids and mask have the shape (prompts, longest prompt); out adds the new tokens on the right.
        width, device = max(len(prompt.ids) for prompt in batch), self.base.model.device
        ids = torch.tensor([[pad] * (width - len(prompt.ids)) + prompt.ids for prompt in batch], device=device)
        mask = torch.tensor(
            [[0] * (width - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch], device=device
        )
        sampled = any(prompt.decoding.temperature > 0 for prompt in batch)
        max_new = max(prompt.max_new for prompt in batch)
        with self.base.using(self.adapter):
            out = self.base.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,  # sampled rows choose their token in _SampleTokens, each by its own generator
                logits_processor=[_SampleTokens(batch)] if sampled else [],
                max_new_tokens=max_new,
                eos_token_id=sorted(self.stops),
                pad_token_id=pad,
            )
        new_ids = out[:, ids.shape[1] :].tolist()
        return {
            # The batch runs to its largest limit; each reply is cut to its own.
            prompt.index: decode_reply_tokens(self.tokenizer, prompt.ids, row[: prompt.max_new], self.stops)
            for prompt, row in zip(batch, new_ids, strict=True)
        }


def _count_tokens(batch: Sequence[_Prompt]) -> int:
    """Count the tokens of a batch: every row is as wide as the longest prompt with the longest reply."""
    return len(batch) * (max(len(prompt.ids) for prompt in batch) + max(prompt.max_new for prompt in batch))


def _fill(queue: Sequence[_Prompt], budget: int) -> list[_Prompt]:
    """Return the prompts from the head of the queue that fit into the budget, at least one."""
    size = 1
    while size < len(queue) and _count_tokens(queue[: size + 1]) <= budget:
        size += 1
    return list(queue[:size])


def _raise_unless_splittable(error: Exception, batch: Sequence[_Prompt]) -> None:
    """Raise the error unless memory ran out on a batch that can be halved."""
    out_of_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        phrase in str(error).lower() for phrase in _NO_MEMORY
    )
    if not out_of_memory:
        raise error
    if len(batch) == 1:
        raise UserError(
            f"request {batch[0].index + 1}: {_count_tokens(batch):,} tokens do not fit into memory even alone. "
            "Use a smaller model or a larger machine."
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _SampleTokens:
    """Logits processor that draws the next token of sampled rows and leaves greedy rows unchanged."""

    def __init__(self, batch: Sequence[_Prompt]) -> None:
        self._rows = [
            (row, prompt.decoding, _generator(prompt))
            for row, prompt in enumerate(batch)
            if prompt.decoding.temperature > 0
        ]

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        # scores: (rows, vocabulary). A sampled row becomes 0 at its token and -inf elsewhere.
        chosen = scores.clone()
        for row, decoding, generator in self._rows:
            token = _draw(scores[row], decoding, generator)
            chosen[row] = -torch.inf
            chosen[row, token] = 0
        return chosen


def _generator(prompt: _Prompt) -> torch.Generator:
    # On the CPU whatever the model's device is, so that a seed gives the same draws on any of them.
    generator = torch.Generator()
    if prompt.decoding.seed is None:
        generator.seed()
    else:
        generator.manual_seed(int(hash_sort_key(prompt.decoding.seed, *prompt.draw)[:15], 16))
    return generator


def _draw(scores: Tensor, decoding: Decoding, generator: torch.Generator) -> int:
    """Draw a token by its probability, from the likeliest tokens that together reach ``top_p``."""
    probabilities = torch.softmax(scores.float().cpu() / decoding.temperature, dim=-1)
    ordered, tokens = probabilities.sort(descending=True)
    # The sum before a token decides, so the token that crosses top_p is kept and at least one token remains.
    ordered[ordered.cumsum(dim=-1) - ordered >= decoding.top_p] = 0
    # Drawn in the order of the vocabulary: two tokens that rounding swaps in the order above keep their random numbers.
    return int(torch.multinomial(torch.zeros_like(ordered).scatter_(0, tokens, ordered), 1, generator=generator))
