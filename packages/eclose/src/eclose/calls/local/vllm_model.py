"""A vLLM engine in this process, with one LoRA request per adapter: for batches, or fed with one request at a time.

vLLM only chooses tokens: prompts are tokenised and replies decoded as for every engine. ``prompt_logprobs`` are never
used, because they are wrong with a prefix cache.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.local.chat_template import (
    decode_reply_tokens,
    find_stop_ids,
    limit_new_tokens,
    load_published_generation_config,
    tokenize_prompt,
)
from eclose.calls.model import Reply, Request
from eclose.errors import SettingError, UserError
from eclose.files.manifest import hash_file
from eclose.values.identity import hash_sort_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VLLM = "vllm"
VLLM_SETTINGS = ("tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization", "max_num_seqs")
"""Settings of vLLM that may be given; the others follow from the model and the request, or may change replies."""
_RANKS = (8, 16, 32, 64, 128, 256, 512)  # the ranks that vLLM accepts
_PROBE = Request(({"role": "user", "content": "Name three rivers, each with the country it rises in."},))


def check_engine_settings(settings: Mapping[str, Any], engine: str | None) -> None:
    """Raise where settings of vLLM are given for another engine, or one may change replies."""
    if settings and engine != VLLM:
        raise SettingError("vllm: is for a model that vLLM runs in this process. Name it as vllm:NAME.")
    if unknown := [name for name in settings if name not in VLLM_SETTINGS]:
        raise SettingError(f"vllm: {', '.join(unknown)}: choose from {', '.join(VLLM_SETTINGS)}.")


def read_adapter_rank(folder: Path) -> int:
    """Return the highest rank in an adapter, from its adapter_config.json."""
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
        return max(int(config["r"]), *map(int, (config.get("rank_pattern") or {"": 0}).values()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is missing or describes no LoRA adapter. vLLM supports no other kind.") from error


@dataclass(frozen=True)
class VllmModel:
    """A ``LocalBatchModel`` on vLLM; ``with_adapter`` returns another one on the same engine."""

    llm: Any
    tokenizer: Any
    base: str
    stops: frozenset[int]
    context: int
    rank: int | None
    """Largest rank of an adapter; None for an engine without adapters."""
    adapter: Any = None

    @property
    def name(self) -> str:
        """Name of the base model, with ``+`` and the adapter's folder name where there is one."""
        return self.base if self.adapter is None else f"{self.base}+{Path(self.adapter.lora_path).name}"

    @classmethod
    def load(
        cls, name: str, *, revision: str | None = None, rank: int | None = None, context: int = 8_192, **settings: Any
    ) -> VllmModel:
        """Start an engine, for adapters up to ``rank`` where one is given; further settings are passed to vLLM."""
        engine = _module("vllm").LLM
        from eclose.calls.local.weights import load_tokenizer  # noqa: PLC0415 - heavy

        tokenizer = load_tokenizer(name, revision)
        stops = find_stop_ids(tokenizer, load_published_generation_config(name, revision))
        if rank is not None:
            # vLLM reserves memory for the largest rank; one above the list is passed on unchanged, and vLLM refuses it.
            rank = next((accepted for accepted in _RANKS if accepted >= rank), rank)
            settings |= {"enable_lora": True, "max_lora_rank": rank}
        settings |= {"max_model_len": context, "trust_remote_code": False}
        # generation_config="vllm" ignores the publisher's generation settings: the request holds all of them.
        llm = engine(model=name, revision=revision, generation_config="vllm", **settings)
        return cls(llm, tokenizer, name, stops, context, rank)

    def with_adapter(self, folder: Path) -> VllmModel:
        """Return the same engine with an adapter; raise where the adapter changes no generated token."""
        if (rank := read_adapter_rank(folder)) > (self.rank or 0):
            raise UserError(
                f"{folder}: has rank {rank}, and the engine was started for {self.rank}. Start it with rank={rank}."
            )
        identity = hash_sort_key(hash_file(folder / "adapter_model.safetensors"))
        # vLLM identifies adapters and their caches by name and number, so both are derived from the content.
        request = _module("vllm.lora.request").LoRARequest(
            f"{folder.name}-{identity[:12]}", int(identity[:7], 16) + 1, str(folder.resolve())
        )
        # An engine that ignores the adapter would answer as the base model does, without any error.
        adapted, bare = replace(self, adapter=request), self if self.adapter is None else replace(self, adapter=None)
        if adapted._fingerprint == bare._fingerprint:
            raise UserError(f"{folder}: the adapter changes no token of vLLM. Check that it was trained on this model.")
        return adapted

    def complete_all(self, requests: Sequence[Request]) -> list[Reply]:
        """Return one reply per request, in order."""
        prompts, sampling = self._prepare(requests)
        pairs = zip(prompts, self._run(prompts, sampling), strict=True)
        return [decode_reply_tokens(self.tokenizer, ids, output.token_ids, self.stops) for ids, output in pairs]

    def feed(self, key: int, request: Request) -> None:
        """Add a request to those that the engine works on; raise PromptTooLongError where it does not fit."""
        ((ids,), (sampling,)) = self._prepare([request])
        # Otherwise the engine would send every token on its own.
        sampling.output_kind = _module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        self.llm.llm_engine.add_request(str(key), {"prompt_token_ids": list(ids)}, sampling, lora_request=self.adapter)

    def step(self) -> list[tuple[int, Reply]]:
        """Compute the next tokens of all requests in the engine; return the replies that are finished, by key."""
        results = [result for result in self.llm.llm_engine.step() if result.finished]
        return [
            (
                int(result.request_id),
                decode_reply_tokens(self.tokenizer, result.prompt_token_ids, result.outputs[0].token_ids, self.stops),
            )
            for result in results
        ]

    def _prepare(self, requests: Sequence[Request]) -> tuple[list[list[int]], list[Any]]:
        prompts = [tokenize_prompt(self.tokenizer, request) for request in requests]
        limits = limit_new_tokens(prompts, requests, self.context)
        decodings = [(request.decoding, request.seed) for request in requests]
        return prompts, [
            self._sampling(limit, temperature=decoding.temperature, top_p=decoding.top_p, seed=seed)
            for limit, (decoding, seed) in zip(limits, decodings, strict=True)
        ]

    @cached_property
    def _fingerprint(self) -> list[tuple[int, float]]:
        """Sixteen greedy tokens with their log-probabilities, which differ between different weights."""
        (output,) = self._run([tokenize_prompt(self.tokenizer, _PROBE)], [self._sampling(16, logprobs=0)])
        pairs = zip(output.token_ids, output.logprobs, strict=True)
        return [(token, logprobs[token].logprob) for token, logprobs in pairs]

    def _run(self, prompts: Sequence[Sequence[int]], sampling: Sequence[Any]) -> list[Any]:
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        results = self.llm.generate(inputs, list(sampling), lora_request=self.adapter, use_tqdm=False)
        return [result.outputs[0] for result in results]

    def _sampling(self, limit: int, temperature: float = 0.0, **settings: Any) -> Any:
        # Token ids are decoded by decode_reply_tokens, as for every engine.
        fixed = {"max_tokens": limit, "stop_token_ids": sorted(self.stops), "detokenize": False}
        return _module("vllm").SamplingParams(temperature=temperature, **fixed, **settings)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as missing:  # torchvision for another torch raises a RuntimeError
        reason = f"vLLM cannot be used here ({missing})"
        raise UserError(f"{reason}. Run: pip install vllm, or use transformers:NAME.") from missing
