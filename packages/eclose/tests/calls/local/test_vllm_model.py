"""vLLM up to its boundary: what it is told, how its tokens are read, and that an adapter must show."""

import asyncio
import json
import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("transformers", reason="needs the train extra")

from eclose.calls.http.failures import CallFailureKind
from eclose.calls.local.chat_template import PromptTooLongError, tokenize_prompt
from eclose.calls.local.microbatch import open_continuous
from eclose.calls.local.vllm_model import VllmModel, read_adapter_rank
from eclose.calls.model import Decoding, FinishReason, Request, TokenUsage
from eclose.errors import UserError

pytestmark = pytest.mark.torch


class SamplingParams:
    def __init__(self, **settings):
        assert "prompt_logprobs" not in settings
        self.settings = settings


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


class SteppingEngine:
    """Finishes one request a step, the latest first; a request may join at any step."""

    def __init__(self, llm):
        self.llm, self.waiting, self.most = llm, [], 0

    def add_request(self, request_id, prompt, params, *, lora_request):
        self.waiting.append((request_id, prompt["prompt_token_ids"], params, lora_request))
        self.most = max(self.most, len(self.waiting))

    def step(self):
        request_id, ids, params, adapter = self.waiting.pop()
        (result,) = self.llm.generate([ids], [params], lora_request=adapter, use_tqdm=False)
        unfinished = [SimpleNamespace(finished=False) for _ in self.waiting]
        return [
            *unfinished,
            SimpleNamespace(finished=True, request_id=request_id, prompt_token_ids=ids, outputs=result.outputs),
        ]


@dataclass
class LLM:
    """Writes the name of its adapter, and ends its turn unless that takes too many tokens."""

    settings: dict
    calls: list = field(default_factory=list)
    tokenizer: object = None
    deaf: bool = False
    """Whether it takes adapters and ignores them."""

    def generate(self, prompts, sampling_params, *, lora_request, use_tqdm):
        assert not use_tqdm
        self.calls.append((prompts, [params.settings for params in sampling_params], lora_request))
        name = "base" if lora_request is None or self.deaf else lora_request.lora_name
        ids = [*self.tokenizer(f"1. I am {name}.\nFinal answer: {name}")["input_ids"], self.tokenizer.eos_token_id]
        return [SimpleNamespace(outputs=[output(ids[: params.settings["max_tokens"]])]) for params in sampling_params]


def output(ids):
    return SimpleNamespace(token_ids=ids, logprobs=[{token: SimpleNamespace(logprob=-token / 7)} for token in ids])


@pytest.fixture
def vllm(tokenizer, monkeypatch):
    """A module that looks like vLLM; its engine is kept as ``made``."""
    module, request, sampling = (ModuleType(f"vllm{name}") for name in ("", ".lora.request", ".sampling_params"))
    sampling.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    module.SamplingParams, request.LoRARequest = SamplingParams, LoRARequest

    def engine(**settings):
        module.made = LLM(settings, tokenizer=tokenizer)
        module.made.llm_engine = SteppingEngine(module.made)
        return module.made

    module.LLM = engine
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.lora.request", request)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    monkeypatch.setattr("eclose.calls.local.weights.load_tokenizer", lambda *_: tokenizer)
    monkeypatch.setattr(
        "eclose.calls.local.vllm_model.load_published_generation_config",
        lambda *_: SimpleNamespace(eos_token_id=[0, 2]),
    )
    return module


@pytest.fixture
def folders(tmp_path):
    """Two adapters by the same name in two runs."""
    paths = []
    for run in "ab":
        folder = tmp_path / run / "checkpoint-5"
        folder.mkdir(parents=True)
        (folder / "adapter_model.safetensors").write_text(f"weights of {run}")
        (folder / "adapter_config.json").write_text(json.dumps({"r": 12}))
        paths.append(folder)
    return paths


def ask(**decoding):
    return Request(({"role": "user", "content": "Who are you?"},), Decoding(**decoding))


def test_the_engine_is_started_for_adapters_and_nobody_elses_code(vllm):
    model = VllmModel.load("some/model", revision="abc", rank=12, tensor_parallel_size=4)
    assert vllm.made.settings == {
        "model": "some/model",
        "revision": "abc",
        "trust_remote_code": False,
        "generation_config": "vllm",
        "max_model_len": 8_192,
        "enable_lora": True,
        "max_lora_rank": 16,
        "tensor_parallel_size": 4,
    }
    assert (model.name, model.stops) == ("some/model", {0, 2})


def test_replies_are_read_as_every_engines_are(vllm, tokenizer):
    model = VllmModel.load("some/model")
    whole, cut = model.complete_all([ask(), ask(max_tokens=4, temperature=0.5, top_p=0.9, seed=7)])
    assert whole.text == "1. I am base.\nFinal answer: base"
    assert whole.finish is FinishReason.STOP
    ids = tokenize_prompt(tokenizer, ask())
    assert cut.usage == TokenUsage(len(ids), 4)
    assert cut.finish is FinishReason.LENGTH
    ((prompts, (greedy, drawn), adapter),) = vllm.made.calls
    assert prompts == [{"prompt_token_ids": ids}] * 2
    assert greedy == {
        "max_tokens": 512,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": None,
        "stop_token_ids": [0, 2],
        "detokenize": False,
    }
    assert (drawn["temperature"], drawn["top_p"], drawn["seed"]) == (0.5, 0.9, 7)
    assert adapter is None


def test_seeds_of_replicas_and_attempts_do_not_collide(vllm):
    model = VllmModel.load("some/model")
    draws = [
        replace(ask(temperature=0.5, seed=seed), replica=replica, attempt=attempt)
        for seed in (42, 43)
        for replica in (0, 1)
        for attempt in (0, 1)
    ]
    model.complete_all(draws)
    ((_, sampling, _),) = vllm.made.calls
    assert len({parameters["seed"] for parameters in sampling}) == len(draws)


def test_adapters_are_told_apart_by_content_not_by_name(vllm, folders):
    model = VllmModel.load("some/model", rank=16)
    first, second = [model.with_adapter(folder) for folder in folders]
    assert first.name == second.name == "some/model+checkpoint-5"
    assert first.adapter.lora_name != second.adapter.lora_name
    assert first.adapter.lora_int_id != second.adapter.lora_int_id
    assert first.adapter.lora_path == str(folders[0])
    assert first.complete_all([ask()]) != second.complete_all([ask()])
    assert vllm.made.calls[-1][2] == second.adapter
    assert "base" in model.complete_all([ask()])[0].text
    # Twice the adapters, once the base.
    assert [call[2] for call in vllm.made.calls[:3]].count(None) == 1


def test_an_adapter_that_is_not_applied_is_noticed(vllm, folders):
    model = VllmModel.load("some/model", rank=16)
    vllm.made.deaf = True
    with pytest.raises(UserError, match="changes no token of vLLM"):
        model.with_adapter(folders[0])


def test_an_adapter_of_too_high_a_rank_is_refused(vllm, folders, tmp_path):
    model = VllmModel.load("some/model", rank=8)
    with pytest.raises(UserError, match="has rank 12, and the engine was started for 8"):
        model.with_adapter(folders[0])
    (folders[0] / "adapter_config.json").write_text(json.dumps({"r": 4, "rank_pattern": {"q_proj": 64, "k_proj": 2}}))
    assert read_adapter_rank(folders[0]) == 64
    with pytest.raises(UserError, match="describes no LoRA adapter"):
        read_adapter_rank(tmp_path)


def test_a_prompt_that_leaves_no_room_is_refused(vllm, tokenizer):
    size = len(tokenize_prompt(tokenizer, ask()))
    model = VllmModel.load("some/model", context=size + 3)
    assert model.complete_all([ask()])[0].usage.completion_tokens == 3
    with pytest.raises(PromptTooLongError):
        VllmModel.load("some/model", context=size).complete_all([ask()])


def test_without_vllm_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match="pip install vllm, or use transformers:NAME"):
        VllmModel.load("some/model")


def test_engine_without_an_adapter_reserves_nothing_for_one(vllm, folders):
    model = VllmModel.load("some/model")
    assert not {"enable_lora", "max_lora_rank"} & vllm.made.settings.keys()
    with pytest.raises(UserError, match="the engine was started for None"):
        model.with_adapter(folders[0])


def test_fed_requests_join_those_under_way_and_fail_alone(vllm, tokenizer):
    """A batch that is awaited as a whole would keep its free places until its slowest reply."""
    size = len(tokenize_prompt(tokenizer, ask()))
    model = VllmModel.load("some/model", context=size + 60)
    too_long = replace(ask(), messages=({"role": "user", "content": "Who are you? " * 60},))

    async def complete():
        async with open_continuous(model) as served:
            return await asyncio.gather(
                *(served.complete(request) for request in (ask(), too_long, ask(max_tokens=4))), return_exceptions=True
            )

    whole, failure, cut = asyncio.run(complete())
    assert (whole.text, whole.finish) == ("1. I am base.\nFinal answer: base", FinishReason.STOP)
    assert (cut.usage.completion_tokens, cut.finish) == (4, FinishReason.LENGTH)
    assert (failure.kind, failure.unpaid) == (CallFailureKind.TOO_LONG, True)
    assert vllm.made.llm_engine.most == 2


def test_engine_that_fails_fails_every_waiting_request(vllm, monkeypatch):
    model = VllmModel.load("some/model")
    monkeypatch.setattr(SteppingEngine, "step", lambda _: 1 / 0)

    async def complete():
        async with open_continuous(model) as served:
            return await asyncio.gather(*(served.complete(ask()) for _ in range(3)), return_exceptions=True)

    assert [type(reply) for reply in asyncio.run(complete())] == [ZeroDivisionError] * 3


def test_vllm_that_fails_to_import_is_a_sentence(monkeypatch):
    """Beside a torchvision for another torch, the import ends with a RuntimeError."""

    def fail(_name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("eclose.calls.local.vllm_model.importlib.import_module", fail)
    with pytest.raises(UserError, match=r"vLLM cannot be used here \(operator torchvision::nms"):
        VllmModel.load("some/model")
