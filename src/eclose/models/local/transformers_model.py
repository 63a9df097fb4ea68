"""A Transformers model in this process, for small runs: batched, greedy or sampled, with adapters on one base.

**What a reply depends on.** Padding is on the left and masked, and positions count from the first real token. So a
greedy reply is decided by its request alone, but for rounding: where two tokens are as good as equal, another batch
may take the other. A sampled reply with a seed draws from a generator of its own, whatever else is in the batch.
What a model's publisher recommends (a temperature, a repetition penalty) is not taken over: a request says it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eclose.core.identity import hash_rank
from eclose.errors import UserError
from eclose.models.interface import Decoding, Reply, Request
from eclose.models.local.chat_template import find_stop_ids, limit_new_tokens, read_reply, tokenize_prompt
from eclose.models.weights import load_model, load_tokenizer, probe_logits, refuse_unchanged_logits, require_adapter

BATCH_TOKENS = 32_768
"""Prompt and new tokens of a batch, padding included."""
_UNBOUNDED = 2**31
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass
class SharedBase:
    """One model and the adapters on it, of which at most one is active at a time."""

    model: Any
    _adapted: Any = None
    _names: dict[Path, str] = field(default_factory=dict)
    _tried: int = 0

    def add(self, folder: Path) -> None:
        """Load an adapter, once; one that does not fit or changes nothing is refused."""
        folder = folder.resolve()
        if folder in self._names:
            return
        require_adapter(folder)
        self._tried += 1
        name = f"adapter{self._tried}"
        try:
            self._load(folder, name)
        except (KeyError, RuntimeError, ValueError) as misfit:
            reason = str(misfit).splitlines()[0]
            raise UserError(f"{folder}: this adapter does not fit the model ({reason}).") from misfit
        refuse_unchanged_logits(folder, self._prediction(None), self._prediction(name))
        self._names[folder] = name

    def using(self, folder: Path | None) -> AbstractContextManager[Any]:
        """The model with that adapter, or with none of those that were loaded."""
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
            # In two steps, so that an adapter that then fails to load is known and stays switched off.
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
    """A request in tokens, with its place among the requests."""

    place: int
    ids: list[int]
    new: int
    """New tokens at most."""
    decoding: Decoding
    replica: int


@dataclass(frozen=True)
class TransformersModel:
    """A ``BatchModel``; ``with_adapter`` gives another one on the same weights."""

    base: SharedBase
    tokenizer: Any
    base_name: str
    stops: frozenset[int]
    adapter: Path | None = None
    context: int | None = None
    """Most tokens of prompt and reply together; None for the model's own limit."""
    batch_tokens: int = BATCH_TOKENS
    progress: Callable[[int, int], None] = lambda _done, _of: None

    @property
    def name(self) -> str:
        """The base, and the adapter if there is one."""
        return self.base_name if self.adapter is None else f"{self.base_name}+{self.adapter.name}"

    @classmethod
    def of(cls, model: Any, tokenizer: Any, name: str, **settings: Any) -> TransformersModel:
        """A model that is already loaded. Its own generation settings are put aside, but for how a turn ends."""
        stops = find_stop_ids(tokenizer, model.generation_config)
        # Transformers fills whatever a call leaves open from here.
        model.generation_config = type(model.generation_config)()
        return cls(SharedBase(model.eval()), tokenizer, name, stops, **settings)

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
        """A model by name or folder, on the accelerator where there is one."""
        if device is None:
            found = torch.accelerator.current_accelerator(check_available=True)
            device = "cpu" if found is None else found.type
        model = load_model(name, revision=revision, dtype=dtype, device=device)
        return cls.of(model, load_tokenizer(name, revision), name, **settings)

    def with_adapter(self, folder: Path) -> TransformersModel:
        """The same model with an adapter on it. The base is shared; this model stays as it is."""
        self.base.add(folder)
        return replace(self, adapter=folder)

    def complete_all(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order. Where memory runs out, batches are halved from there on."""
        queue = sorted(self._prompts(requests), key=lambda prompt: -len(prompt.ids))  # what fails, fails at once
        replies: dict[int, Reply] = {}
        budget = self.batch_tokens
        while queue:
            batch = _fill(queue, budget)
            try:
                replies |= self._generate(batch)
            except (MemoryError, RuntimeError) as error:
                _pass_on_unless_memory(error, batch)
                budget = _tokens(batch) // 2
            else:
                del queue[: len(batch)]
                self.progress(len(replies), len(requests))
        return [replies[place] for place in range(len(requests))]

    def _prompts(self, requests: Sequence[Request]) -> list[_Prompt]:
        ids = [tokenize_prompt(self.tokenizer, request) for request in requests]
        config = self.base.model.config.get_text_config()
        own = getattr(config, "max_position_embeddings", None) or _UNBOUNDED
        limits = limit_new_tokens(ids, requests, own if self.context is None else min(own, self.context))
        return [
            _Prompt(place, ids[place], limits[place], request.decoding, request.replica)
            for place, request in enumerate(requests)
        ]

    def _generate(self, batch: list[_Prompt]) -> dict[int, Reply]:
        pad = min(self.stops)
        ids, mask = _padded(batch, pad, self.base.model.device)
        sampled = any(prompt.decoding.temperature > 0 for prompt in batch)
        with self.base.using(self.adapter):
            out = self.base.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,  # sampled rows choose their token in a processor, each by its own generator
                logits_processor=[_Drawing(batch)] if sampled else [],
                max_new_tokens=max(prompt.new for prompt in batch),
                eos_token_id=sorted(self.stops),
                pad_token_id=pad,
            )
        new = out[:, ids.shape[1] :].tolist()
        return {
            prompt.place: read_reply(self.tokenizer, prompt.ids, row[: prompt.new], self.stops)
            for prompt, row in zip(batch, new, strict=True)
        }


def _tokens(batch: Sequence[_Prompt]) -> int:
    """What a batch takes: every row as wide as the longest prompt with the longest reply."""
    return len(batch) * (max(len(prompt.ids) for prompt in batch) + max(prompt.new for prompt in batch))


def _fill(queue: Sequence[_Prompt], budget: int) -> list[_Prompt]:
    """As many from the head of the queue as fit; one always does."""
    size = 1
    while size < len(queue) and _tokens(queue[: size + 1]) <= budget:
        size += 1
    return list(queue[:size])


def _padded(batch: Sequence[_Prompt], pad: int, device: Any) -> tuple[Tensor, Tensor]:
    width = max(len(prompt.ids) for prompt in batch)
    ids = [[pad] * (width - len(prompt.ids)) + prompt.ids for prompt in batch]
    mask = [[0] * (width - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _pass_on_unless_memory(error: Exception, batch: Sequence[_Prompt]) -> None:
    """Raise again what has nothing to do with memory, and a want of memory that no smaller batch can mend."""
    short = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        phrase in str(error).lower() for phrase in _NO_MEMORY
    )
    if not short:
        raise error
    if len(batch) == 1:
        raise UserError(
            f"request {batch[0].place + 1}: {_tokens(batch):,} tokens do not fit into memory even alone. "
            "Use a smaller model or a larger machine."
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _Drawing:
    """Chooses the next token of sampled rows, and leaves greedy rows to the highest score."""

    def __init__(self, batch: Sequence[_Prompt]) -> None:
        self._rows = [
            (row, prompt.decoding, _generator(prompt))
            for row, prompt in enumerate(batch)
            if prompt.decoding.temperature > 0
        ]

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        chosen = scores.clone()
        for row, decoding, generator in self._rows:
            token = _draw(scores[row], decoding, generator)
            chosen[row] = -torch.inf
            chosen[row, token] = 0
        return chosen


def _generator(prompt: _Prompt) -> torch.Generator:
    generator = torch.Generator()
    if prompt.decoding.seed is None:
        generator.seed()
    else:
        generator.manual_seed(int(hash_rank(prompt.decoding.seed, prompt.replica)[:15], 16))
    return generator


def _draw(scores: Tensor, decoding: Decoding, generator: torch.Generator) -> int:
    """A token by its probability, from the likeliest that together reach ``top_p``."""
    chances = torch.softmax(scores.float().cpu() / decoding.temperature, dim=-1)
    ordered, tokens = chances.sort(descending=True)
    ordered[ordered.cumsum(dim=-1) - ordered >= decoding.top_p] = 0
    return int(tokens[torch.multinomial(ordered, 1, generator=generator)])
