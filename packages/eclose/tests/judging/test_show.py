"""What is shown of a judged response: its prompts, replies and checks, and the cause of every refusal."""

from __future__ import annotations

import json
import re
import shutil
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.calls import ledger_tools
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.judging.show import COMPLETE_REPLY, REPLY_FORM, STEP_IDS, STEP_QUOTES
from eclose.values.judgment import Criterion
from eclose_world.faulty.broken_responses import FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

pytestmark = pytest.mark.slow


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def spoil_quotes(reply):
    steps = {
        name: {**step, "support": step["support"] and {**step["support"], "quote": "no passage says this"}}
        for name, step in reply.content["steps"].items()
    }
    return ScriptedReply({"steps": steps})


def add_comment(reply):
    return ScriptedReply({**reply.content, "comment": "hm"})


def cut_off(reply):
    return ScriptedReply(reply.content, finish_reason="length")


SPOILED = {
    "quotes": ("judge_soundness", spoil_quotes, STEP_QUOTES, "quote not found: ", Criterion.LOCAL_SOUNDNESS),
    "form": (
        "judge_closure",
        add_comment,
        REPLY_FORM,
        "invalid: the reply does not match the schema: Additional",
        Criterion.CLOSURE,
    ),
    "length": ("judge_alignment", cut_off, COMPLETE_REPLY, "length", Criterion.ALIGNMENT),
}


@pytest.fixture(scope="module", params=[None, *SPOILED])
def judged(request, tmp_path_factory):
    """Two responses to each of two questions, judged by the world, which may spoil the replies to one question."""
    run = tmp_path_factory.mktemp("run")
    pairs = [
        (item.instance, break_response(item, FailurePlan(), f"r{number}").response)
        for item in islice(make_world_items("short-easy", 3), 2)
        for number in range(2)
    ]
    jsonl.write_records(run / "instances.jsonl", {instance.id: instance for instance, _ in pairs}.values())
    jsonl.write_records(run / "responses.jsonl", [response for _, response in pairs])
    world, registry = build_world_handlers(), HandlerRegistry()
    spoiled = SPOILED.get(request.param, (None, None))
    for name in world.schema_names:
        handler = world.handler(name)
        if name == spoiled[0]:
            registry.register(name, lambda chat, handler=handler: spoiled[1](handler(chat)))
        else:
            registry.register(name, handler)
    with ModelServerThread(registry) as server:
        command("judge", run, "--judge", server.base_url, "--no-price", "--max-unjudged-share", 1)
    return run, [response.id for _, response in pairs], request.param


def test_every_call_is_shown_with_prompt_reply_checks_and_cause(judged):
    run, ids, spoiled = judged
    for response_id in ids:
        trail = eclose.show_judgment(run, response_id)
        assert trail.recorded
        assert trail.judgment.response_id == response_id
        questions = [call.question for call in trail.calls if call.attempt == 0]
        # The second response to a question shares the reply on its evidence, and has it all the same.
        assert questions == [
            "judge_sufficiency", "judge_soundness", "judge_alignment", "judge_closure", "judge_completeness",
            "judge_correctness",
        ]  # fmt: skip
        for call in trail.calls:
            assert [role for role, _ in call.messages] == ["system", "user"]
            assert call.reply
            assert (call.cause is None) is all(check.passed for check in call.checks)
        if spoiled is None:
            assert trail.refusals == ()
            continue
        question, _, check, cause, criterion = SPOILED[spoiled]
        assert [(call.question, call.attempt) for call in trail.refusals] == [(question, 0), (question, 1)]
        for call in trail.refusals:
            assert call.cause.startswith(cause)
            (failed,) = [entry for entry in call.checks if entry.passed is False]
            assert failed.text == check
            assert call.cause == failed.problem
        assert trail.labels[criterion.value] is None
        assert trail.judgment.unjudged[criterion].partition(":")[0] == cause.partition(":")[0]


def test_the_checks_are_those_of_judging(judged):
    """A reply that a check fails has no label, and one that passes them all has one."""
    run, ids, _ = judged
    trail = eclose.show_judgment(run, ids[0])
    soundness = [call for call in trail.calls if call.question == "judge_soundness"]
    assert {check.text for call in soundness for check in call.checks} == {
        COMPLETE_REPLY, REPLY_FORM, STEP_IDS, STEP_QUOTES
    }  # fmt: skip
    assert (trail.labels["L"] is None) is all(call.cause for call in soundness)


def test_the_command_prints_what_python_returns(judged):
    run, ids, spoiled = judged
    trail = eclose.show_judgment(run, ids[1])
    assert json.loads(command("judge", "show", run, ids[1], "--json")) == json.loads(json.dumps(trail.as_json()))
    output = command("judge", "show", run, ids[1])
    assert trail.instance.question in output
    assert "\x1b" not in output
    for call in trail.calls:
        assert call.reply.splitlines()[0] in output
        assert call.messages[0][1].splitlines()[0] in output
    assert output.count("  cause: ") == len(trail.refusals) == (2 if spoiled else 0)
    brief = command("judge", "show", run, ids[1], "--brief")
    for number, text in enumerate(trail.response.trace.texts, start=1):
        expected = "not judged" if trail.labels["L"] is None else "yes"
        assert re.search(rf"^ *{number}  {expected} .*{re.escape(text)}$", brief, re.MULTILINE)
    assert trail.calls[0].reply not in brief
    assert f"{len(trail.calls)} calls, {len(trail.refusals)} without a usable reply" in brief


def test_a_finished_run_is_looked_up_by_keys(judged, tmp_path, monkeypatch):
    run, ids, _ = judged
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "judgments.jsonl.manifest.json").unlink()
    scanned = [eclose.show_judgment(copy, response_id) for response_id in ids]

    def refuse_scan(*_):
        raise AssertionError("the whole ledger is read")

    monkeypatch.setattr(ledger_tools, "read_ledger_calls", refuse_scan)
    assert [eclose.show_judgment(run, response_id) for response_id in ids] == scanned


def test_without_a_ledger_prompts_are_built_again(judged, tmp_path):
    run, ids, _ = judged
    for name in ("instances.jsonl", "responses.jsonl", "judgments.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    trail = eclose.show_judgment(tmp_path, ids[0])
    assert not trail.recorded
    original = eclose.show_judgment(run, ids[0])
    assert [call.messages for call in trail.calls] == [call.messages for call in original.calls if not call.attempt]
    assert {call.reply for call in trail.calls} == {None}
    assert "no reply is recorded" in command("judge", "show", tmp_path, ids[0])
    with_ledger = eclose.show_judgment(tmp_path, ids[0], ledger=run / "ledger.sqlite")
    assert with_ledger.calls == original.calls
    # Before the first judgment is written, the calls can be read already.
    (tmp_path / "judgments.jsonl").unlink()
    assert "not judged yet" in command("judge", "show", tmp_path, ids[0])


def test_an_unknown_response_is_refused_with_similar_ids(judged):
    run, ids, _ = judged
    with pytest.raises(eclose.UserError, match="there is no response") as error:
        eclose.show_judgment(run, ids[0] + "x")
    assert ids[0] in str(error.value)
