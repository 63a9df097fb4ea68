"""A model in this process: the right bytes in, each reply its own, adapters apart, memory respected."""

from copy import deepcopy
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from eclose.calls.local.chat_template import PromptTooLongError, find_stop_ids, tokenize_prompt
from eclose.calls.local.transformers_model import TransformersModel, _draw
from eclose.calls.local.weights import load_adapter
from eclose.calls.model import Decoding, FinishReason, ReplySchema, Request
from eclose.errors import SettingError, UserError
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_world.make.families import make_world_families
from tests.calls.local import tiny

pytestmark = pytest.mark.torch

WORDS = ["river", "stone", "lamp", "letter", "harbour", "winter", "engine", "orchard"]


def request(words, **decoding):
    return Request(({"role": "user", "content": words},), Decoding(**{"max_tokens": 12, **decoding}))


REQUESTS = [request(" ".join(WORDS[: 1 + number % 8] * (1 + number % 3))) for number in range(9)]


@pytest.fixture
def local(tokenizer):
    return TransformersModel.of(tiny.model(), tokenizer, "tiny")


def texts(replies):
    return [reply.text for reply in replies]


def greedy(model, ids, count):
    """The plainest decoding there is: no padding, no cache, no library."""
    ids = list(ids)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[-count:]


def test_the_prompt_is_the_one_that_training_scores(tokenizer):
    renderer = TokenPathRenderer(tokenizer)
    for family in islice(make_world_families("hotpot", 3), 2):
        for view in family.views:
            request = Request(tuple(renderer.prompt.messages(view.question, view.evidence)))
            text = renderer.prompt_text(view.question, view.evidence)
            assert tokenizer.decode(tokenize_prompt(tokenizer, request)) == text
            path = renderer.render(view.question, view.evidence, view.trace)
            ids = tokenize_prompt(tokenizer, request)
            assert list(path.ids[: len(ids)]) == ids


def test_thinking_is_switched_off_as_training_does(tokenizer, monkeypatch):
    template = "{% if enable_thinking is defined and not enable_thinking %}no thinking{% endif %}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert tokenizer.decode(tokenize_prompt(tokenizer, request("x"))) == "no thinking"


def test_replies_are_those_of_the_plainest_decoding(local, tokenizer):
    for query, reply in zip(REQUESTS, local.complete_all(REQUESTS), strict=True):
        ids = tokenize_prompt(tokenizer, query)
        assert reply.text == tokenizer.decode(greedy(local.base.model, ids, 12), skip_special_tokens=True)
        assert (reply.finish, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
            FinishReason.LENGTH,
            len(ids),
            12,
        )


@pytest.mark.parametrize("budget", [1, 150, 400, 10**6])
def test_the_batch_does_not_change_a_greedy_reply(local, budget, monkeypatch):
    rows = []
    generate = local.base.model.generate
    monkeypatch.setattr(local.base.model, "generate", lambda **k: rows.append(k["input_ids"].shape) or generate(**k))
    assert replace(local, batch_tokens=budget).complete_all(REQUESTS) == local.complete_all(REQUESTS)
    first = rows[:-1]  # the last is the comparison's one batch
    assert sum(shape[0] for shape in first) == len(REQUESTS)
    assert all(shape[0] == 1 or shape[0] * (shape[1] + 12) <= budget for shape in first)
    # Sorted by length, so that little is padding.
    assert [shape[1] for shape in first] == sorted((shape[1] for shape in first), reverse=True)


def test_it_stops_at_whatever_ends_a_turn(tokenizer):
    spoken = greedy(tiny.model(), tokenize_prompt(tokenizer, REQUESTS[0]), 12)
    end = next(token for index, token in enumerate(spoken) if index > 2 and token not in spoken[:index])
    position = spoken.index(end)
    by_settings = tiny.model()
    by_settings.generation_config.eos_token_id = [7, end]
    replies = [TransformersModel.of(by_settings, tokenizer, "tiny").complete_all([REQUESTS[0], REQUESTS[5]])[0]]
    by_tokenizer = deepcopy(tokenizer)
    by_tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    replies += TransformersModel.of(tiny.model(), by_tokenizer, "tiny").complete_all([REQUESTS[0]])
    for reply in replies:
        assert (reply.text, reply.finish) == (tokenizer.decode(spoken[:position]), FinishReason.STOP)
        assert reply.usage.completion_tokens == position + 1


def test_a_limit_is_each_requests_own(local):
    short, long = request("river", max_tokens=3), request("river", max_tokens=9)
    replies = local.complete_all([short, long])
    assert [reply.usage.completion_tokens for reply in replies] == [3, 9]
    assert replies[1].text.startswith(replies[0].text)


def test_what_a_publisher_recommends_is_not_taken_over(local, tokenizer):
    model = tiny.model()
    # A penalty below 1 rewards: it would make the model repeat its prompt.
    model.generation_config.update(do_sample=True, temperature=2.0, repetition_penalty=0.01, max_new_tokens=2, top_k=3)
    assert TransformersModel.of(model, tokenizer, "tiny").complete_all(REQUESTS) == local.complete_all(REQUESTS)


def test_sampled_replies_follow_their_seed_whatever_is_beside_them(local):
    def drawn(**more):
        return request("river stone", temperature=1.5, **more)

    alone = [local.complete_all([drawn(seed=seed)])[0] for seed in (1, 2)]
    mixed = local.complete_all([drawn(seed=2), *REQUESTS, drawn(seed=1), replace(drawn(seed=1), replica=1)])
    assert [mixed[-2], mixed[0]] == alone
    assert mixed[1:10] == local.complete_all(REQUESTS)
    assert len({reply.text for reply in (*alone, mixed[-1])}) == 3
    assert len({reply.text for reply in local.complete_all([drawn(), drawn()])}) == 2
    assert local.complete_all([drawn(seed=1, top_p=1e-9)]) == local.complete_all([request("river stone")])


def test_drawing_follows_the_probabilities():
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])
    generator = torch.Generator().manual_seed(0)

    def shares(**decoding):
        drawn = [_draw(chances.log(), Decoding(**decoding), generator) for _ in range(4_000)]
        return torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)

    assert torch.allclose(shares(temperature=1.0), chances, atol=0.03)
    squared = chances**2 / (chances**2).sum()
    assert torch.allclose(shares(temperature=0.5), squared, atol=0.03)
    # 0.5 and 0.3 reach 0.7 together; the others are never drawn.
    assert torch.allclose(shares(temperature=1.0, top_p=0.7), torch.tensor([5 / 8, 3 / 8, 0, 0]), atol=0.03)


def test_adapters_share_a_base_and_stay_apart(local, adapters, tokenizer):
    before = local.complete_all(REQUESTS)
    first, second = [local.with_adapter(folder) for folder in adapters]
    outputs = [model.complete_all(REQUESTS) for model in (first, second, local, first)]
    assert outputs[0] != outputs[1]
    assert outputs[0] == outputs[3]
    assert outputs[2] == before
    assert first.base is second.base
    assert (first.name, local.name) == ("tiny+checkpoint-1", "tiny")
    assert second.with_adapter(adapters[0]).name == "tiny+checkpoint-1"
    for folder, replies in zip(adapters, outputs[:2], strict=True):
        reference = load_adapter(tiny.model(), folder)
        ids = tokenize_prompt(tokenizer, REQUESTS[3])
        assert replies[3].text == tokenizer.decode(greedy(reference, ids, 12), skip_special_tokens=True)


def test_an_adapter_that_is_not_the_one_meant_is_refused(local, adapters, tmp_path):
    before = local.complete_all(REQUESTS)
    idle = tiny.adapter(tmp_path / "idle", 3, scale=0.0)
    for _ in range(2):  # a refusal is not forgotten
        with pytest.raises(UserError, match="changes no prediction"):
            local.with_adapter(idle)
    with pytest.raises(UserError, match=r"holds no adapter_model\.safetensors"):
        local.with_adapter(tmp_path)
    assert local.complete_all(REQUESTS) == before
    assert local.with_adapter(adapters[0]).complete_all(REQUESTS) != before


def test_an_adapter_of_another_model_is_refused_and_leaves_no_mark(local, tmp_path):
    before = local.complete_all(REQUESTS)
    described = tiny.adapter(tmp_path / "described", 3, rank=4)
    wrong = tiny.adapter(tmp_path / "wrong", 4, rank=8)
    (wrong / "adapter_model.safetensors").replace(described / "adapter_model.safetensors")
    with pytest.raises(UserError, match="does not fit the model"):
        local.with_adapter(described)
    assert local.complete_all(REQUESTS) == before


def test_what_cannot_be_done_is_said(local, tokenizer, monkeypatch):
    with pytest.raises(SettingError, match="verdict: a model in this process cannot follow a JSON schema"):
        local.complete_all([replace(request("x"), schema=ReplySchema("verdict", {}))])
    with pytest.raises(SettingError, match="reports no log-probabilities"):
        local.complete_all([request("x", top_logprobs=2)])
    monkeypatch.setattr(tokenizer, "chat_template", None)
    with pytest.raises(UserError, match="no chat template"):
        local.complete_all([request("x")])


def test_nothing_is_cut_to_fit(local, tokenizer):
    size = len(tokenize_prompt(tokenizer, request("river")))
    local.base.model.config.max_position_embeddings = size + 4
    (reply,) = local.complete_all([request("river")])
    assert (reply.finish, reply.usage.completion_tokens) == (FinishReason.LENGTH, 4)
    local.base.model.config.max_position_embeddings = size
    with pytest.raises(
        PromptTooLongError,
        match=rf"request 2: {size + 1} prompt tokens leave no room for a reply in a context of {size}",
    ):
        local.complete_all([request(""), request("river stone")])


def test_a_model_without_an_end_is_refused():
    with pytest.raises(UserError, match="names an end-of-turn token"):
        find_stop_ids(SimpleNamespace(eos_token_id=None), None)


def failing(local, monkeypatch, error, rows):
    """Make the model fail on batches of that many rows and more; tells which were tried."""
    tried = []
    generate = local.base.model.generate

    def sometimes(**settings):
        tried.append(len(settings["input_ids"]))
        if tried[-1] >= rows:
            raise error
        return generate(**settings)

    monkeypatch.setattr(local.base.model, "generate", sometimes)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
)
def test_batches_are_halved_where_memory_runs_out(local, monkeypatch, error):
    expected = local.complete_all(REQUESTS)
    tried = failing(local, monkeypatch, error, 4)
    updates = []
    model = replace(local, progress=lambda done, of: updates.append((done, of)))
    assert model.complete_all(REQUESTS) == expected
    assert tried[0] == 9
    assert max(tried[3:]) < 4  # once halved, the rest is not tried as large again
    assert updates[-1] == (9, 9)


def test_one_request_too_large_for_memory_is_a_sentence(local, monkeypatch):
    failing(local, monkeypatch, torch.OutOfMemoryError("CUDA out of memory."), 1)
    with pytest.raises(UserError, match=r"request \d: \d+ tokens do not fit into memory even alone"):
        local.complete_all(REQUESTS)


def test_other_failures_are_bugs(local, monkeypatch):
    failing(local, monkeypatch, RuntimeError("shapes cannot be multiplied"), 1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        local.complete_all(REQUESTS)


def test_no_requests_no_replies(local):
    assert local.complete_all([]) == []


@pytest.mark.slow
def test_a_real_model_answers():
    model = TransformersModel.load(str(tiny.gguf()), dtype="float32", device="cpu")
    requests = [request(f"What is the capital of {land}?", max_tokens=24) for land in ("France", "Japan", "Egypt")]
    replies = model.complete_all(requests)
    for reply, city in zip(replies, ("Paris", "Tokyo", "Cairo"), strict=True):
        assert city in reply.text
    assert replies == [model.complete_all([query])[0] for query in requests]
    assert any(reply.finish is FinishReason.STOP for reply in replies)
