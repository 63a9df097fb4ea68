"""Shares of supported statements and claims: over HTTP from the world's oracle, and from a model that says as told."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.http.failures import CallFailure
from eclose.calls.ledger.ledger import Ledger
from eclose.detectors.claim_support import build_claim_requests, score_claim_support
from eclose.detectors.scores import DetectorKind, Unscored
from eclose.detectors.settings import ChatDetectorSettings
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import open_model_server
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

INSTANCE = Instance("i", "Where was she born?", (Passage("0", "Ana", "Ana Ruiz was born in Arica."),), "Arica")
RESPONSE = Response("r", "i", Trace.of("Let us see.", "Ana Ruiz was born in Arica."), "Arica")
RAGAS, VERISCORE = DetectorKind.STATEMENT_SUPPORT, DetectorKind.CLAIM_SUPPORT
FIELDS = {RAGAS: "statements", VERISCORE: "claims"}
BOTH = pytest.mark.parametrize("kind", [RAGAS, VERISCORE])


def score(tmp_path, registry, cases, kind, **settings):
    """Score responses over HTTP; return the scores and the server's totals."""

    async def main():
        calls = CallSettings(unpriced=True, concurrency=8)
        async with (
            open_model_server(registry) as server,
            Ledger.open(tmp_path / "l.db", run="a") as ledger,
            open_connection(server.base_url, ledger, calls) as connection,
        ):
            detector = ChatDetectorSettings(detector=kind, **settings)
            scores = (score_claim_support(*case, connection.model, detector) for case in cases)
            return await asyncio.gather(*scores), server.bill(keys=False)["totals"]

    return asyncio.run(main())


def script(kind, says, supported):
    """Return a model that says the same of every response, and supports the texts that it is told to."""
    field = FIELDS[kind]
    requests = []

    def extract(request):
        requests.append(request)
        return ScriptedReply({field: says})

    def verify(request):
        requests.append(request)
        statements = json.loads(request.messages[-1]["content"])[field]
        entries = {str(each["id"]): {"reason": "so", "supported": each["text"] in supported} for each in statements}
        return ScriptedReply({field: entries})

    registry = HandlerRegistry()
    registry.register("detect_statements" if kind is RAGAS else "detect_claims", extract)
    registry.register("detect_supported" if kind is RAGAS else "detect_claims_supported", verify)
    return registry, requests


@BOTH
def test_the_score_is_the_share_of_supported_statements(tmp_path, kind):
    registry, requests = script(kind, ["a", "b", "c", "d"], {"a", "d", "c"})
    ((result,), totals) = score(tmp_path, registry, [(INSTANCE, RESPONSE)], kind)
    assert (result.score, result.unscored, result.detector, result.response_id) == (0.75, None, kind, "r")
    assert result.model == "127.0.0.1/world"
    entries = result.details[FIELDS[kind]]
    assert [(entry["text"], entry["supported"]) for entry in entries] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("d", True),
    ]
    assert {entry["reason"] for entry in entries} == {"so"}
    assert totals["paid"] == 2
    # The first call sees the whole response and no passage, the second the passages and no question.
    first, second = (json.loads(request.messages[-1]["content"]) for request in requests)
    assert (set(first), first["answer"]) == ({"question", "steps", "answer"}, "Arica")
    assert set(second) == {"evidence", FIELDS[kind]}


def test_a_claim_counts_once_and_a_statement_as_often_as_it_is_made(tmp_path):
    says = ["Ana was born.", "ana  was born", "Ana is old."]
    ((claims,), _) = score(tmp_path, script(VERISCORE, says, {says[0]})[0], [(INSTANCE, RESPONSE)], VERISCORE)
    assert (claims.score, claims.details["repeated"]) == (0.5, 1)
    (tmp_path / "2").mkdir()
    registry = script(RAGAS, says, set(says[:2]))[0]
    ((statements,), _) = score(tmp_path / "2", registry, [(INSTANCE, RESPONSE)], RAGAS)
    assert statements.score == pytest.approx(2 / 3)
    assert "repeated" not in statements.details


@BOTH
def test_a_response_that_says_nothing_has_no_score(tmp_path, kind):
    reason = {RAGAS: Unscored.NO_STATEMENT, VERISCORE: Unscored.NO_CLAIM}[kind]
    empty = Response("e", "i", Trace(()), None)
    results, totals = score(tmp_path, script(kind, [], set())[0], [(INSTANCE, RESPONSE), (INSTANCE, empty)], kind)
    assert [(result.score, result.unscored) for result in results] == [(None, reason)] * 2
    # One question about the first, none about the second: what a model would say of nothing is known.
    assert totals["paid"] == 1


@BOTH
def test_an_answer_without_a_trace_and_a_trace_without_an_answer_are_scored(tmp_path, kind):
    registry, requests = script(kind, ["a"], {"a"})
    cases = [
        (INSTANCE, Response("1", "i", Trace(()), "Arica")),
        (INSTANCE, Response("2", "i", RESPONSE.trace, None)),
    ]
    results, _ = score(tmp_path, registry, cases, kind)
    assert [result.score for result in results] == [1.0, 1.0]
    payloads = [json.loads(request.messages[-1]["content"]) for request in requests]
    assert {(len(each["steps"]), each["answer"]) for each in payloads if "answer" in each} == {(0, "Arica"), (2, None)}


@BOTH
@pytest.mark.parametrize("broken", ["extract", "verify"])
def test_a_reply_of_another_shape_is_asked_for_again_and_then_counted(tmp_path, kind, broken):
    registry, _ = script(kind, ["a", "b"], {"a"})
    settings = ChatDetectorSettings(detector=kind)
    name = settings.claim_questions.extract if broken == "extract" else settings.claim_questions.verify
    registry._handlers[name] = lambda _: ScriptedReply({"nothing": []})
    ((result,), totals) = score(tmp_path, registry, [(INSTANCE, RESPONSE)], kind, attempts=3)
    assert (result.score, result.unscored) == (None, Unscored.NO_REPLY)
    assert (result.details["question"], result.details["reason"]) == (name, "invalid")
    assert totals["paid"] == (3 if broken == "extract" else 4)
    assert (FIELDS[kind] in result.details) is (broken == "verify")


@BOTH
def test_a_blank_statement_is_asked_for_again(tmp_path, kind):
    registry, _ = script(kind, ["a", " "], {"a"})
    ((result,), totals) = score(tmp_path, registry, [(INSTANCE, RESPONSE)], kind)
    assert (result.unscored, result.details["reason"]) == (Unscored.NO_REPLY, "blank statement")
    assert totals["paid"] == 2


@BOTH
def test_a_reply_that_is_cut_off_is_not_scored(tmp_path, kind):
    registry, _ = script(kind, ["a b c d e f g h"], set())
    ((result,), _) = score(tmp_path, registry, [(INSTANCE, RESPONSE)], kind, max_tokens=3)
    assert (result.score, result.unscored, result.details["reason"]) == (None, Unscored.NO_REPLY, "length")


def test_a_request_that_the_server_cannot_answer_is_no_score_but_a_failure(tmp_path):
    with pytest.raises(CallFailure, match="unknown schema"):
        score(tmp_path, HandlerRegistry(), [(INSTANCE, RESPONSE)], RAGAS)


def planted(count):
    for item in islice(make_world_items("short-easy", 3), count):
        for plan in (FailurePlan(), *FAILURE_PLANS[:13]):
            if (broken := break_response(item, plan, "x")) is not None:
                yield item.instance, broken


@pytest.mark.slow
@BOTH
def test_an_exact_model_supports_the_sound_steps_and_the_correct_answer(tmp_path, kind):
    """The labels by which responses were planted decide the score: no text of the oracle is looked at."""
    cases = list(planted(6))
    results, _ = score(tmp_path, build_world_handlers(), [(i, broken.response) for i, broken in cases], kind)
    for result, (_, broken) in zip(results, cases, strict=True):
        steps = [step for step in broken.steps if kind is RAGAS or step.substantive]
        expected = [step.sound is not False for step in steps] + [broken.verdict.correct]
        assert [entry["supported"] for entry in result.details[FIELDS[kind]]] == expected
        assert result.score == pytest.approx(sum(expected) / len(expected))
    lengths = {len(result.details[FIELDS[kind]]) - len(b.steps) for result, (_, b) in zip(results, cases, strict=True)}
    # Steps that claim nothing are among the planted ones, and VeriScore-style detection leaves them out.
    assert lengths == ({1} if kind is RAGAS else {0, 1})


def test_the_forecast_supposes_a_statement_for_each_step_and_the_answer():
    requests = list(build_claim_requests(INSTANCE, RESPONSE, ChatDetectorSettings(detector=RAGAS)))
    assert [request.schema.name for request in requests] == ["detect_statements", "detect_supported"]
    assert list(requests[1].schema.schema["properties"]["statements"]["properties"]) == ["1", "2", "3"]
    empty = Response("e", "i", Trace(()), None)
    assert list(build_claim_requests(INSTANCE, empty, ChatDetectorSettings(detector=RAGAS))) == []


def test_with_a_window_every_sentence_is_asked_about_with_its_neighbours(tmp_path):
    windows = []

    def extract(request):
        windows.append(json.loads(request.messages[-1]["content"]))
        return ScriptedReply({"claims": [f"claim of {windows[-1]['sentence']}", "said twice"]})

    registry, _ = script(VERISCORE, [], {"claim of One is.", "said twice"})
    registry.register("detect_window_claims", extract)
    response = Response("r", "i", Trace.of("One is. Two is.", "Three is."), "Arica")
    ((result,), totals) = score(tmp_path, registry, [(INSTANCE, response)], VERISCORE, window=(1, 0))
    assert [(each["before"], each["sentence"], each["after"]) for each in windows] == [
        ([], "One is.", []),
        (["One is."], "Two is.", []),
        (["Two is."], "Three is.", []),
    ]
    # No passage and no answer is shown with a sentence; the answer is a claim of its own, and repeated ones count once.
    assert all(set(each) == {"question", "before", "sentence", "after"} for each in windows)
    assert totals["paid"] == 4
    assert [claim["text"] for claim in result.details["claims"]] == [
        "claim of One is.",
        "said twice",
        "claim of Two is.",
        "claim of Three is.",
        'The answer to the question "Where was she born?" is Arica.',
    ]
    assert (result.score, result.details["repeated"]) == (0.4, 2)
    settings = ChatDetectorSettings(detector=VERISCORE, window=(1, 0))
    assert len(list(build_claim_requests(INSTANCE, response, settings))) == 4


def test_a_sentence_without_a_usable_reply_leaves_the_response_without_a_score(tmp_path):
    registry, _ = script(VERISCORE, [], set())
    registry.register("detect_window_claims", lambda _: ScriptedReply({"other": 1}))
    ((result,), _) = score(tmp_path, registry, [(INSTANCE, RESPONSE)], VERISCORE, window=(3, 1))
    assert (result.score, result.unscored) == (None, Unscored.NO_REPLY)
    assert result.details["question"] == "detect_window_claims"


@pytest.mark.slow
def test_in_the_world_a_window_changes_no_score(tmp_path):
    cases = [
        (item.instance, broken.response)
        for item in islice(make_world_items("short-easy", 3), 2)
        for plan in (FailurePlan(), *FAILURE_PLANS[10:13])
        if (broken := break_response(item, plan, "x")) is not None
    ]
    whole, _ = score(tmp_path, build_world_handlers(), cases, VERISCORE)
    (tmp_path / "2").mkdir()
    windowed, _ = score(tmp_path / "2", build_world_handlers(), cases, VERISCORE, window=(3, 1))
    assert [result.score for result in windowed] == [result.score for result in whole]
    assert len({result.score for result in whole}) > 1
