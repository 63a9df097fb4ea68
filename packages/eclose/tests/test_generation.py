"""Generation as a function: what is asked, what is kept of it, and what a second run does."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from eclose.calls.adapters import refuse_ineffective_adapter
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.http.providers import RequestDialect
from eclose.calls.model import Decoding, FinishReason, Reply, Request, TokenUsage, identify_request
from eclose.calls.resolve import LocalModelRef, ServedModelRef, find_model_ref
from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records, write_records
from eclose.generation import GenerateSettings, forecast_generation, plan_generation
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.response import Response, ResponseSource
from eclose_world.server.chat_requests import BadRequest
from eclose_world.server.chat_requests import ScriptedReply as Said
from tests import generating
from tests.generating import FREE, asked, generate, paid, questions, recipe, server, world


@pytest.fixture
def instances(tmp_path):
    questions(tmp_path / "instances.jsonl")
    return tmp_path / "instances.jsonl"


def responses(folder):
    return list(read_records(folder / "responses.jsonl", Response))


def test_every_question_is_answered_once_and_a_second_run_asks_nothing(instances, tmp_path):
    with server() as model:
        first = generate(instances, model, tmp_path / "run")
        assert paid(model) == 12
        again = generate(instances, model, tmp_path / "run")
        assert paid(model) == 12
    assert (first.again, again.again) == (False, True)
    assert first.manifest == again.manifest
    assert str(first.manifest.counts) == "12 received = 12 accepted + 0 rejected + 0 quarantined"
    records = responses(tmp_path / "run")
    assert [record.instance_id for record in records] == sorted(record.instance_id for record in records)
    assert len({record.id for record in records}) == 12
    assert all(record.answer and record.trace.steps and record.source.model == "world" for record in records)
    assert first.manifest.calls["replies"] == 12
    assert first.manifest.settings["prompt"] == ResponsePrompt().hash
    assert first.manifest.settings["decoding"]["max_tokens"] == 1024


@pytest.mark.slow
def test_the_order_of_the_file_changes_nothing(tmp_path):
    records = questions(tmp_path / "a.jsonl", 20)
    random.Random(1).shuffle(records)
    write_records(tmp_path / "b.jsonl", records)
    with server() as model:
        for name in "ab":
            generate(tmp_path / f"{name}.jsonl", model, tmp_path / name)
    texts = [(tmp_path / name / "responses.jsonl").read_bytes() for name in "ab"]
    assert (tmp_path / "a.jsonl").read_bytes() != (tmp_path / "b.jsonl").read_bytes()
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_questions_are_asked_in_the_order_of_their_ids(tmp_path):
    records = questions(tmp_path / "a.jsonl", 20)
    random.Random(2).shuffle(records)
    write_records(tmp_path / "a.jsonl", records)
    heard = []

    def noting(request):
        heard.append(asked(request))
        return world(request)

    with server(noting) as model:
        generate(tmp_path / "a.jsonl", model, tmp_path / "run", calls=replace(FREE, concurrency=1))
    assert heard == [one.question for one in sorted(records, key=lambda one: one.id)]


def test_only_the_first_by_id(instances, tmp_path):
    with server() as model:
        outcome = generate(instances, model, tmp_path / "run", GenerateSettings(limit=3))
        assert paid(model) == 3
    assert outcome.manifest.counts.received == 3


REPLIES = [
    Said("1. A.\nFinal answer: x"),
    Said("1. A.\nFinal answer: x\nMore of th", finish_reason="length"),
    Said("1. A.\nFinal answer: New Yo", finish_reason="length"),
    Said("1. A.\n2. B", finish_reason="length"),
    Said("1. A.\n2. B."),
    Said("1. A.\nFinal answer:"),
    Said(""),
    Said("", refusal="I'm sorry, but I can't help with that."),
    Said("1. A.\nFinal answer: x\nFinal answer: y"),
]


def test_what_is_incomplete_is_kept_and_counted_and_a_refusal_is_set_aside(tmp_path):
    ids = [f"q{number}" for number in range(len(REPLIES))]
    records = questions(tmp_path / "a.jsonl", len(REPLIES), ids)
    replies = {record.question: reply for record, reply in zip(records, REPLIES, strict=True)}
    assert len(replies) == len(REPLIES)
    with server(lambda request: replies[asked(request)]) as model:
        outcome = generate(tmp_path / "a.jsonl", model, tmp_path / "run")
        assert paid(model) == len(REPLIES)
    assert outcome.manifest.calls["incomplete"] == {"cut_off": 2, "empty": 1, "empty_answer": 1, "no_answer_line": 1}
    assert outcome.manifest.counts.rejected == {"generate: refusal": 1}
    by_id = {response.instance_id: response for response in responses(tmp_path / "run")}
    assert [by_id[id_].answer for id_ in ids if id_ in by_id] == ["x", "x", None, None, None, None, None, "x"]
    assert [by_id[id_].completion for id_ in ids if id_ in by_id] == [
        reply.content for reply in REPLIES if not reply.refusal
    ]
    assert by_id["q8"].answer_lines == 2
    (refused,) = map(json.loads, outcome.stage.rejected_path.read_text().splitlines())
    assert (refused["id"], refused["reason"]) == ("q7", "refusal")
    assert "can't help" in refused["value"]["raw"]


def test_nothing_an_id_says_becomes_a_path(tmp_path):
    ids = ["../../out", "/etc/x", "a\u2028b", "..", "run/../../b", "c" * 300]
    questions(tmp_path / "a.jsonl", len(ids), ids)
    with server() as model:
        generate(tmp_path / "a.jsonl", model, tmp_path / "run")
    assert {response.instance_id for response in responses(tmp_path / "run")} == set(ids)
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "run"}
    assert all(path.name.startswith(("responses", "instances", "ledger")) for path in (tmp_path / "run").rglob("*"))


def test_unreadable_records_are_counted_and_the_others_answered(instances, tmp_path):
    lines = instances.read_text().splitlines()
    instances.write_text("\n".join([*lines[:3], "{}", lines[0], "no json"]) + "\n")
    with server() as model:
        outcome = generate(instances, model, tmp_path / "run")
    assert outcome.manifest.counts.accepted == 3
    assert outcome.manifest.counts.rejected == {"read: duplicate": 1}
    assert sum(outcome.manifest.counts.quarantined.values()) == 2


def test_questions_that_are_replaced_during_the_run_are_refused_and_nothing_is_sealed(instances, tmp_path):
    before = instances.read_bytes()
    calls = 0

    def replacing(request):
        nonlocal calls
        calls += 1
        if calls == 5:
            instances.write_bytes(before.replace(b" the ", b" no! "))
        return world(request)

    with server(replacing) as model:
        with pytest.raises(UserError, match=r"was changed .* while it was in use"):
            generate(instances, model, tmp_path / "run")
        assert not (tmp_path / "run" / "responses.jsonl").exists()
        assert not (tmp_path / "run" / "responses.jsonl.manifest.json").exists()
        questions = (tmp_path / "run" / "instances.jsonl").read_text()
        assert "no!" not in questions
        assert calls == 12
        instances.write_bytes(before)
        outcome = generate(instances, model, tmp_path / "run")
        assert calls == 12  # paid before the file was changed, and kept
    assert (outcome.manifest.counts.accepted, outcome.again) == (12, False)
    assert (tmp_path / "run" / "instances.jsonl").read_text() == questions


def test_questions_of_other_work_in_the_folder_are_refused_before_anything_is_asked(instances, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "instances.jsonl").write_text("mine\n")
    with server() as model:
        with pytest.raises(UserError, match="has no manifest"):
            generate(instances, model, tmp_path / "run")
        assert paid(model) == 0


# How a reply is drawn.


def test_a_key_without_thinking_is_what_it_was():
    """Calls that were paid before there was such a setting are still found."""
    request = Request(({"role": "user", "content": "hello"},))
    assert identify_request("m", request)["decoding"] == {
        "max_tokens": 512,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": None,
        "top_logprobs": None,
    }
    thinking = replace(request, decoding=Decoding(thinking=False))
    assert identify_request("m", thinking)["decoding"]["thinking"] is False


@pytest.mark.parametrize(
    ("name", "given", "sent"),
    [
        ("http://127.0.0.1:1/v1", None, False),
        ("vllm/q", None, False),
        ("openai/q", None, None),
        ("openai/q", False, False),
        ("vllm/q", True, True),
    ],
)
def test_thinking_is_off_on_servers_of_ones_own(instances, tmp_path, name, given, sent):
    route = find_model_ref(name, environ={"OPENAI_API_KEY": "k"})
    model = ServedModelRef(replace(route.route, model="q"))
    planned = asyncio.run(plan_generation(instances, model, tmp_path / "run", GenerateSettings(thinking=given)))
    body = RequestDialect().body("q", Request((), planned.decoding))
    assert body.get("chat_template_kwargs") == (None if sent is None else {"enable_thinking": sent})
    assert body["temperature"] == 0
    assert body["max_tokens"] == 1024


def test_a_server_that_takes_no_word_for_its_template_is_asked_without(instances, tmp_path):
    def strict(request):
        if "chat_template_kwargs" in request.body:
            raise BadRequest("Unrecognized request argument supplied: chat_template_kwargs")
        return world(request)

    with server(strict) as model:
        outcome = generate(instances, model, tmp_path / "run", calls=replace(FREE, concurrency=2))
    assert outcome.manifest.counts.accepted == 12


def test_prompt_settings_reach_the_model(instances, tmp_path):
    heard = []

    def noting(request):
        heard.append(request)
        return world(request)

    settings = GenerateSettings(demonstrations=1, order=PromptOrder.QUESTION_FIRST, max_new_tokens=99)
    with server(noting) as model:
        generate(instances, model, tmp_path / "run", settings)
    assert {len(request.messages) for request in heard} == {4}
    assert {request.max_tokens for request in heard} == {99}
    assert all(request.messages[-1]["content"].startswith("Question: ") for request in heard)


# Where a run was broken off.


def test_a_result_without_its_manifest_is_finished_if_the_ledger_knows_the_run(instances, tmp_path):
    """The moment between the two files, in which a kill may come."""
    with server() as model:
        outcome = generate(instances, model, tmp_path / "run")
        before = outcome.stage.out.read_bytes()
        outcome.stage.manifest_path.unlink()
        outcome.stage.out.write_bytes(b"half")
        again = generate(instances, model, tmp_path / "run")
        assert paid(model) == 12
    assert outcome.stage.out.read_bytes() == before
    assert again.manifest.outputs == outcome.manifest.outputs


def test_somebody_elses_file_is_not_overwritten(instances, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "responses.jsonl").write_text("mine\n")
    with server() as model:
        with pytest.raises(UserError, match="has no manifest"):
            generate(instances, model, tmp_path / "run")
        assert (tmp_path / "run" / "responses.jsonl").read_text() == "mine\n"
        assert paid(model) == 0
        generate(instances, model, tmp_path / "run", force=True)
    assert len(responses(tmp_path / "run")) == 12


@pytest.mark.slow
def test_other_settings_are_another_run_and_share_no_answer(instances, tmp_path):
    with server() as model:
        generate(instances, model, tmp_path / "run")
        with pytest.raises(UserError, match="other settings"):
            generate(instances, model, tmp_path / "run", GenerateSettings(demonstrations=0))
        generate(instances, model, tmp_path / "run", GenerateSettings(demonstrations=0), force=True)
        assert paid(model) == 24


def test_a_replay_asks_nobody_for_a_name(instances, tmp_path):
    with pytest.raises(SettingError, match="Name the model"):
        asyncio.run(plan_generation(instances, "http://127.0.0.1:1/v1", tmp_path / "run", replay=True))


def test_a_forecast_sends_nothing_and_knows_no_price(instances, tmp_path):
    with server() as model:
        ref = find_model_ref("world", base_url=model.base_url, environ={})
        generation = forecast_generation(asyncio.run(plan_generation(instances, ref, tmp_path / "run")))
        assert model.bill(keys=False)["totals"]["received"] == 0
    assert (generation.calls, generation.completion_tokens, generation.cost) == (12, 12 * 1024, None)
    assert generation.prompt_tokens > 12 * 300
    assert not (tmp_path / "run").exists()


# Adapters that are served.


class Scripted:
    """A ``ChatModel`` that says what it is given, the log-probability of its only token with it."""

    def __init__(self, name, text, *logprobs, finish=FinishReason.LENGTH):
        self.name = name
        self._text = text
        self._logprobs = list(logprobs)
        self._finish = finish
        self.heard = []

    async def complete(self, request):
        from eclose.calls.model import TokenLogprob

        self.heard.append(request)
        if request.decoding.top_logprobs is not None and not self._logprobs:
            raise CallFailure(CallFailureKind.INVALID, "no log-probabilities.")
        chances = (TokenLogprob("x", self._logprobs.pop(0)),) if self._logprobs else None
        reply = Reply(self._text, self._finish, TokenUsage(1, 1), chances)
        if self._finish is FinishReason.LENGTH:
            raise CallFailure(CallFailureKind.LENGTH, "cut off.", reply=reply)
        return reply


@pytest.mark.parametrize(
    ("adapted", "base"),
    [
        (Scripted("a", "one", -1.0), Scripted("b", "two", -1.0, -1.0)),
        (Scripted("a", "one", -1.5), Scripted("b", "one", -1.0, -1.0)),
        (Scripted("a", "one", -1.5), Scripted("b", "one", -1.0, -1.1)),
        (Scripted("a", "one"), Scripted("b", "two", finish=FinishReason.STOP)),
    ],
)
def test_an_adapter_that_says_something_else_is_applied(adapted, base):
    asyncio.run(refuse_ineffective_adapter(adapted, base))
    assert len({request.replica for request in adapted.heard + base.heard}) == len(adapted.heard + base.heard)


def test_a_base_whose_own_replies_differ_proves_nothing_against_an_adapter():
    class Wavering(Scripted):
        async def complete(self, request):
            self._text += "."
            return await super().complete(request)

    asyncio.run(refuse_ineffective_adapter(Scripted("a", "one"), Wavering("b", "two", finish=FinishReason.STOP)))


@pytest.mark.parametrize(
    ("adapted", "base"),
    [
        (Scripted("a", "one", -1.0), Scripted("b", "one", -1.0, -1.0)),
        (Scripted("a", "one", -1.01), Scripted("b", "one", -1.0, -1.02)),
        (Scripted("a", "one"), Scripted("b", "one")),
    ],
)
def test_an_adapter_that_cannot_be_told_from_its_base_is_refused(adapted, base):
    with pytest.raises(UserError, match="the server does not apply the adapter"):
        asyncio.run(refuse_ineffective_adapter(adapted, base))


@pytest.mark.parametrize("applied", [True, False])
def test_a_served_adapter_is_proved_before_anything_is_asked(instances, tmp_path, applied):
    def handler(request):
        reply = world(request)
        return Said(f"{reply.text} ") if applied and request.model == "tuned" else reply

    with server(handler) as model:
        ref = find_model_ref("tuned", base_url=model.base_url, base_model="plain", environ={})
        if applied:
            outcome = generate(instances, model, tmp_path / "run", model=ref)
            assert paid(model) == 12 + 3
            assert responses(tmp_path / "run")[0].source.method == "tuned"
            assert outcome.manifest.settings["base_model"] == "plain"
        else:
            with pytest.raises(UserError, match="the server does not apply the adapter"):
                generate(instances, model, tmp_path / "run", model=ref)
            assert paid(model) == 3


# Models in this process.


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    pytest.importorskip("peft", reason="needs the train extra")
    from tests.calls.local import tiny

    folder = tmp_path_factory.mktemp("weights") / "tiny"
    tiny.model().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tmp_path, weights):
    from tests.calls.local import tiny

    folder = tiny.adapter(tmp_path / "trained" / "selected", 1)
    recipe = {"method": "e_closure", "seed": 42, "model": str(weights), "demonstrations": 0, "order": "question_first"}
    (folder.parent / "recipe.json").write_text(json.dumps(recipe))
    return folder


FEW = GenerateSettings(demonstrations=0, max_new_tokens=4)


@pytest.mark.slow
def test_a_model_in_this_process_answers_in_batches(instances, tmp_path, weights, monkeypatch):
    from eclose.calls.local.transformers_model import TransformersModel

    sizes = []
    answer = TransformersModel.complete_all

    def noting(self, requests):
        sizes.append(len(requests))
        return answer(self, requests)

    monkeypatch.setattr(TransformersModel, "complete_all", noting)
    outcome = generate(instances, None, tmp_path / "run", FEW, model=find_model_ref(str(weights)))
    assert sum(sizes) == 12
    assert len(sizes) <= 3
    assert outcome.manifest.calls["incomplete"] == {"cut_off": 12}
    assert {response.source.model for response in responses(tmp_path / "run")} == {"tiny"}
    engine = outcome.manifest.calls["engine"]
    assert (engine["engine"], engine["dtype"]) == ("transformers", "float32")
    assert {"torch", "transformers", "peft"} <= engine["versions"].keys()
    assert engine["device"]
    assert outcome.manifest.settings["max_length"] == 8_192
    assert str(weights.parent) not in outcome.stage.out.read_text() + outcome.stage.manifest_path.read_text()
    again = generate(instances, None, tmp_path / "run", FEW, model=find_model_ref(str(weights)))
    assert (again.again, sum(sizes)) == (True, 12)


@pytest.mark.slow
def test_an_adapter_changes_what_is_said_and_is_known_by_its_content(instances, tmp_path, weights, adapter):
    recipe = json.loads((adapter.parent / "recipe.json").read_text())
    plain, tuned = find_model_ref(str(weights)), find_model_ref(str(weights), adapter=adapter, recipe=recipe)
    generate(instances, None, tmp_path / "plain", FEW, model=plain)
    generate(instances, None, tmp_path / "tuned", FEW, model=tuned, ledger=tmp_path / "plain" / "ledger.sqlite")
    completions = [[response.completion for response in responses(tmp_path / name)] for name in ("plain", "tuned")]
    assert completions[0] != completions[1]
    ids = [{response.id for response in responses(tmp_path / name)} for name in ("plain", "tuned")]
    assert not ids[0] & ids[1]  # verdicts on several systems may lie in one file
    source = responses(tmp_path / "tuned")[0].source
    assert (source.model, source.method, source.seed) == ("tiny", "e_closure", 42)
    from tests.calls.local import tiny

    other = find_model_ref(str(weights), adapter=tiny.adapter(tmp_path / "other" / "selected", 2))
    assert other.name.partition("@")[0] == tuned.name.partition("@")[0] == "tiny+selected"
    assert other.name != tuned.name


@pytest.mark.slow
def test_an_adapter_is_asked_as_it_was_trained(tmp_path, weights, adapter):
    questions(tmp_path / "instances.jsonl", 2)
    words = [
        "generate",
        tmp_path / "instances.jsonl",
        "--model",
        weights,
        "--adapter",
        adapter,
        "--out",
        tmp_path / "r",
    ]
    with pytest.raises(SettingError, match="An adapter is prompted as it was trained: leave it out"):
        CliRunner().invoke(app, [*map(str, words), "--demonstrations", "2"], catch_exceptions=False)
    result = CliRunner().invoke(app, [*map(str, words), "--max-new-tokens", "4"], catch_exceptions=False)
    assert "without an answer: 2 responses (cut_off 2)" in result.stdout
    settings = json.loads((tmp_path / "r" / "responses.jsonl.manifest.json").read_text())["settings"]
    assert (settings["demonstrations"], settings["order"]) == (0, "question_first")


@pytest.mark.slow
def test_an_adapter_that_changes_nothing_is_refused(instances, tmp_path, weights):
    from tests.calls.local import tiny

    idle = find_model_ref(str(weights), adapter=tiny.adapter(tmp_path / "idle", 1, scale=0.0))
    with pytest.raises(UserError, match="changes no prediction"):
        generate(instances, None, tmp_path / "run", FEW, model=idle)
    assert not (tmp_path / "run" / "responses.jsonl").exists()


@pytest.mark.slow
def test_a_question_that_does_not_fit_fails_alone(tmp_path, weights):
    from eclose.values.instance import Passage

    records = questions(tmp_path / "a.jsonl", 3)
    long = replace(records[0], id="long", evidence=(Passage("0", "t", "word " * 9_000),), support_ids=None)
    write_records(tmp_path / "a.jsonl", [*records, long])
    outcome = generate(tmp_path / "a.jsonl", None, tmp_path / "run", FEW, model=find_model_ref(str(weights)))
    assert outcome.manifest.counts.accepted == 3
    assert outcome.manifest.counts.quarantined == {"generate: too_long": 1}
    assert "leave no room" in outcome.stage.quarantine_path.read_text()


@pytest.mark.slow
def test_how_models_are_named(tmp_path, weights):
    ref = find_model_ref(f"vllm:{weights}")
    assert isinstance(ref, LocalModelRef)
    assert ref.engine == "vllm"
    assert find_model_ref("transformers:Qwen/Qwen3-8B", revision="abc").identity["revision"] == "abc"
    assert find_model_ref(str(weights)).name != ref.name
    with pytest.raises(UserError, match="holds no model"):
        find_model_ref(str(tmp_path))
    with pytest.raises(SettingError, match="Name the adapter as the model"):
        find_model_ref("vllm/q", adapter=tmp_path, environ={})
    with pytest.raises(SettingError, match="loaded here"):
        find_model_ref(str(weights), base_model="b")
    with pytest.raises(SettingError, match="prompted without"):
        generating.generate(tmp_path, None, tmp_path / "r", GenerateSettings(thinking=True), model=ref)


def test_a_batch_that_fails_fails_all_who_wait(instances, tmp_path):
    from eclose.calls.local.microbatch import MicrobatchModel

    class Broken:
        name = "broken"

        def complete_all(self, _):
            raise ZeroDivisionError

    async def ask():
        model = MicrobatchModel(Broken())
        request = Request(({"role": "user", "content": "hello"},))
        return await asyncio.gather(*(model.complete(request) for _ in range(3)), return_exceptions=True)

    assert [type(error) for error in asyncio.run(ask())] == [ZeroDivisionError] * 3


# Where responses come from: an experiment joins by backbone, method and seed.


def old_recipe(weights):
    """A recipe of a run with default settings, as files held it before every value was written down."""
    return {"model": str(weights), "demonstrations": 0, "order": "evidence_first", "work": "sha256:0"}


@pytest.mark.slow
def test_an_adapter_trained_with_default_settings_still_names_method_and_seed(tmp_path, weights):
    from tests.calls.local import tiny

    folder = tiny.adapter(tmp_path / "trained" / "selected", 1)
    ref = find_model_ref(str(weights), adapter=folder, recipe=old_recipe(weights))
    assert ref.source == ResponseSource("tiny", "e_closure", 42)
    named = find_model_ref(str(weights), adapter=folder, recipe={**old_recipe(weights), "method": "sft", "seed": 0})
    assert named.source == ResponseSource("tiny", "sft", 0)


@pytest.mark.slow
def test_an_adapter_without_a_recipe_has_no_seed(tmp_path, weights):
    from tests.calls.local import tiny

    folder = tiny.adapter(tmp_path / "elsewhere", 1)
    assert find_model_ref(str(weights), adapter=folder).source == ResponseSource("tiny", "elsewhere", None)


@pytest.mark.parametrize(
    ("base_model", "recipe", "expected"),
    [
        (None, {"model": "Qwen/Qwen3-8B"}, ResponseSource("Qwen/Qwen3-8B", "e_closure", 42)),
        (
            "base",
            {"model": "Qwen/Qwen3-8B", "method": "cf_sft", "seed": 44},
            ResponseSource("Qwen/Qwen3-8B", "cf_sft", 44),
        ),
        ("base", {"model": "/far/away/qwen3-8b"}, ResponseSource("qwen3-8b", "e_closure", 42)),
        ("Qwen/Qwen3-8B", {}, ResponseSource("Qwen/Qwen3-8B", "tuned", None)),
        (None, {}, ResponseSource("tuned")),
    ],
)
def test_a_served_adapter_is_known_by_its_backbone_method_and_seed(base_model, recipe, expected):
    ref = find_model_ref("tuned", base_url="http://10.0.0.5:8000/v1", base_model=base_model, recipe=recipe, environ={})
    assert ref.source == expected
    assert ref.name == "10.0.0.5:8000/tuned"  # calls are still kept by server


@pytest.mark.slow
def test_a_served_adapter_has_the_source_of_the_same_adapter_loaded_here(tmp_path, weights, adapter):
    recipe = old_recipe(weights)
    served = find_model_ref("tuned", base_url="http://10.0.0.5:8000/v1", base_model="tiny", recipe=recipe, environ={})
    assert served.source == find_model_ref(str(weights), adapter=adapter, recipe=recipe).source
    plain = find_model_ref("tiny", base_url="http://10.0.0.5:8000/v1", environ={})
    assert plain.source == find_model_ref(str(weights)).source == ResponseSource("tiny")


def test_a_provider_stays_in_the_name_of_its_model():
    assert find_model_ref("openai/gpt-x", environ={"OPENAI_API_KEY": "k"}).source == ResponseSource("openai/gpt-x")
    assert find_model_ref("vllm/Qwen/Qwen3-8B", environ={}).source == ResponseSource("Qwen/Qwen3-8B")


def test_what_is_said_of_a_source_comes_first_and_decides_the_run(instances, tmp_path):
    with server() as model:
        sources = ResponseSource("Qwen/Qwen3-8B", "sft", 43), ResponseSource("Qwen/Qwen3-8B", "sft", 44)
        refs = [find_model_ref("world", base_url=model.base_url, source=source, environ={}) for source in sources]
        generate(instances, model, tmp_path / "run", model=refs[0])
        assert {response.source for response in responses(tmp_path / "run")} == {sources[0]}
        with pytest.raises(UserError, match="other settings"):
            generate(instances, model, tmp_path / "run", model=refs[1])
        calls = paid(model)
        generate(instances, model, tmp_path / "again", model=refs[1], ledger=tmp_path / "run" / "ledger.sqlite")
        assert {response.source for response in responses(tmp_path / "again")} == {sources[1]}
        assert paid(model) == calls  # the same model said it: nothing is paid twice for another name


@pytest.fixture
def tuned_server():
    """A server whose adapter `tuned` answers otherwise than its base."""

    def handler(request):
        reply = world(request)
        return Said(f"{reply.text} ") if request.model == "tuned" else reply

    with server(handler) as model:
        yield model


def served(model, instances, out, **settings):
    command = ["generate", instances, "--model", "tuned", "--base-url", model.base_url, "--no-price", "--out", out]
    command += recipe(instances.parent, base_model="plain", **settings)
    return CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)


@pytest.mark.slow
def test_the_command_takes_a_served_adapters_source_from_its_recipe(instances, tmp_path, tuned_server):
    recipe = tmp_path / "run" / "recipe.json"
    recipe.parent.mkdir()
    recipe.write_text(json.dumps({"model": "Qwen/Qwen3-8B", "seed": 43, "demonstrations": 0}))
    for number, where in enumerate((recipe, recipe.parent)):
        out = tmp_path / f"out{number}"
        result = served(tuned_server, instances, out, adapter_recipe=where)
        assert result.exit_code == 0, result.output
        assert {response.source for response in responses(out)} == {ResponseSource("Qwen/Qwen3-8B", "e_closure", 43)}
        assert json.loads((out / "responses.jsonl.manifest.json").read_text())["settings"]["demonstrations"] == 0
        assert "training seed" not in result.output
    with pytest.raises(SettingError, match=r"training_seed: the command says 44, the recipe of .* says 43"):
        served(tuned_server, instances, tmp_path / "no", adapter_recipe=recipe, training_seed=44)
    with pytest.raises(UserError, match=r"there is no recipe\.json here"):
        served(tuned_server, instances, tmp_path / "no", adapter_recipe=tmp_path / "nowhere" / "at" / "all")


@pytest.mark.slow
def test_the_command_takes_a_served_adapters_source_from_settings(instances, tmp_path, tuned_server):
    settings = {"backbone": "Qwen/Qwen3-8B", "method": "sft", "training_seed": 0}
    result = served(tuned_server, instances, tmp_path / "a", **settings)
    assert result.exit_code == 0, result.output
    assert {response.source for response in responses(tmp_path / "a")} == {ResponseSource("Qwen/Qwen3-8B", "sft", 0)}
    silent = served(tuned_server, instances, tmp_path / "b")
    assert {response.source for response in responses(tmp_path / "b")} == {ResponseSource("plain", "tuned", None)}
    assert "the training seed of tuned is not known" in silent.output


def test_a_model_as_it_is_has_no_training_seed(instances, tmp_path, tuned_server):
    words = ["generate", instances, "--model", "plain", "--base-url", tuned_server.base_url, "--no-price"]
    words += ["--out", tmp_path / "a", *recipe(tmp_path, training_seed=42)]
    with pytest.raises(SettingError, match="Name the training method too: method"):
        CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


@pytest.mark.slow
def test_prompt_and_reply_have_a_longest_length_here(tmp_path, weights):
    """The paper's 8,192 tokens unless told otherwise; what does not fit is set aside, not cut."""
    questions(tmp_path / "a.jsonl", 3)
    settings = replace(FEW, max_length=40)
    outcome = generate(tmp_path / "a.jsonl", None, tmp_path / "run", settings, model=find_model_ref(str(weights)))
    assert outcome.manifest.counts.quarantined == {"generate: too_long": 3}
    assert outcome.manifest.settings["max_length"] == 40
