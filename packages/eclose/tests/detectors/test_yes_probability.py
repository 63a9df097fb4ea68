"""P(Yes) from a server with known log-probabilities, over HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from math import exp, log

import pytest
from aiohttp import web

from eclose.calls.client import CallSettings, connect_model
from eclose.calls.http.endpoint import Endpoint, ModelRoute
from eclose.calls.http.failures import CallFailure
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import TokenLogprob
from eclose.detectors.scores import DetectorKind, Unscored
from eclose.detectors.settings import ChatDetectorSettings
from eclose.detectors.yes_probability import read_yes_no_probabilities, score_alignment
from eclose.errors import SettingError
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from tests.calls.http.site import site

INSTANCE = Instance("i", "Where was she born?", (Passage("0", "Ana", "Ana Ruiz was born in Arica."),), "Arica")
RESPONSE = Response("r", "i", Trace.of("Ana Ruiz was born in Arica."), "Arica")
SETTINGS = ChatDetectorSettings(detector=DetectorKind.ALIGNMENT)
CALLS = CallSettings(unpriced=True)


def token(text, probability, **alternatives):
    """Return an entry of the protocol; the sampled token is among its alternatives, as at most servers."""
    others = {text: probability, **alternatives}
    top = [{"token": other, "logprob": log(mass)} for other, mass in others.items()]
    return {"token": text, "logprob": log(probability), "top_logprobs": top}


def body(text, entries, finish="stop"):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    logprobs = None if entries is None else {"content": entries}
    usage = {"prompt_tokens": 5, "completion_tokens": len(entries or ())}
    return {"choices": [{**choice, "logprobs": logprobs}], "usage": usage}


@asynccontextmanager
async def scripted(reply, requests, status=200):
    """Serve one reply to every request, and collect the requests."""

    async def answer(request):
        requests.append(json.loads(await request.read()))
        return web.json_response(reply, status=status)

    async with site(answer) as url:
        yield url


def score(tmp_path, reply, *, status=200, times=1, response=RESPONSE, settings=SETTINGS):
    """Score a response; return the score and the requests that the server got."""
    requests = []

    async def main():
        async with (
            scripted(reply, requests, status) as url,
            Ledger.open(tmp_path / "l.db", run="a") as ledger,
            Endpoint(ModelRoute(url, "m", None)) as endpoint,
        ):
            model = (await connect_model(endpoint, ledger, CALLS)).model
            for _ in range(times):
                result = await score_alignment(INSTANCE, response, model, settings)
        return result

    return asyncio.run(main()), requests


def test_the_probabilities_of_all_spellings_of_yes_are_added(tmp_path):
    entries = [token("Yes", 0.5, **{" yes": 0.2, "YES": 0.1, "No": 0.1, " no": 0.05, "Yesterday": 0.04})]
    result, requests = score(tmp_path, body("Yes", entries))
    assert result.score == pytest.approx(0.8)
    assert result.unscored is None
    assert result.details["no"] == pytest.approx(0.15)
    assert result.details["reported"] == pytest.approx(0.99)
    assert result.details["token"] == "Yes"
    assert "at_most" not in result.details
    (request,) = requests
    assert (request["logprobs"], request["top_logprobs"], request["max_tokens"]) == (True, 20, 4)
    assert request["temperature"] == 0
    assert "response_format" not in request


def test_the_score_is_the_probability_of_yes_and_not_its_share(tmp_path):
    result, _ = score(tmp_path, body("Maybe", [token("Maybe", 0.6, Yes=0.3, No=0.1)]))
    assert result.score == pytest.approx(0.3)


def test_a_sampled_token_that_is_not_among_its_alternatives_counts_too(tmp_path):
    entry = token("No", 0.2, Yes=0.5)
    entry["top_logprobs"] = [other for other in entry["top_logprobs"] if other["token"] != "No"]
    result, _ = score(tmp_path, body("No", [entry]))
    assert (result.score, result.details["no"]) == (pytest.approx(0.5), pytest.approx(0.2))
    assert result.details["reported"] == pytest.approx(0.7)


@pytest.mark.parametrize("lead", [[token("\n", 0.9, Yes=0.1)], [token(" ", 1.0), token("\n\n", 0.4, No=0.6)]])
def test_the_first_token_that_is_not_white_space_counts(tmp_path, lead):
    entries = [*lead, token("Yes", 0.7, No=0.3), token(" No", 1.0)]
    result, _ = score(tmp_path, body("".join(entry["token"] for entry in entries), entries))
    assert result.score == pytest.approx(0.7)


def test_yes_behind_the_alternatives_is_zero_with_a_bound(tmp_path):
    result, _ = score(tmp_path, body("No", [token("No", 0.9, Not=0.04, Maybe=0.03)]))
    assert result.score == 0.0
    assert result.details["at_most"] == pytest.approx(0.03)
    assert "yes" not in result.details


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("The answer", [token("The", 0.9, Yesterday=0.05, Nope=0.05), token(" Yes", 1.0)]),
        ("**Yes**", [token("**", 0.9, Maybe=0.1), token("Yes", 1.0)]),
    ],
)
def test_neither_yes_nor_no_is_no_score(tmp_path, text, entries):
    result, _ = score(tmp_path, body(text, entries))
    assert (result.score, result.unscored) == (None, Unscored.NO_YES_OR_NO)
    assert result.details["reply"] == text


def test_white_space_up_to_the_limit_is_no_score(tmp_path):
    result, _ = score(tmp_path, body("\n\n\n\n", [token("\n", 0.9, Yes=0.1)] * 4, "length"))
    assert (result.score, result.unscored) == (None, Unscored.NO_YES_OR_NO)


def test_a_reply_that_is_cut_off_after_its_first_word_is_scored_and_paid_once(tmp_path):
    entries = [token("Yes", 0.8, No=0.2), token(",", 1.0), token(" it", 1.0), token(" is", 1.0)]
    result, requests = score(tmp_path, body("Yes, it is", entries, "length"), times=3)
    assert result.score == pytest.approx(0.8)
    assert len(requests) == 1


@pytest.mark.parametrize(("text", "finish"), [("Yes", "stop"), ("Yes, it is", "length"), ("", "length")])
@pytest.mark.parametrize("entries", [None, []])
def test_a_server_without_log_probabilities_is_refused_with_a_sentence(tmp_path, text, finish, entries):
    with pytest.raises(SettingError, match=r"reports no log-probabilities.*name another --model"):
        score(tmp_path, body(text, entries, finish))


def test_a_server_that_refuses_the_request_for_them_is_refused_too(tmp_path):
    error = {"error": {"message": "'logprobs' is not supported with this model", "param": "logprobs"}}
    with pytest.raises(SettingError, match=r"reports no log-probabilities.*not supported with this model"):
        score(tmp_path, error, status=400)


def test_another_refused_request_concerns_the_response_alone(tmp_path):
    with pytest.raises(CallFailure, match="something else"):
        score(tmp_path, {"error": {"message": "something else"}}, status=400)


def test_a_trace_too_long_for_the_model_is_not_scored(tmp_path):
    error = {"error": {"message": "maximum context length is 8192 tokens"}}
    result, _ = score(tmp_path, error, status=400)
    assert (result.score, result.unscored) == (None, Unscored.TOO_LONG)


def test_a_refusal_is_not_scored(tmp_path):
    reply = body("", None)
    reply["choices"][0]["message"]["refusal"] = "I cannot help with that."
    result, _ = score(tmp_path, reply)
    assert (result.score, result.unscored) == (None, Unscored.NO_REPLY)
    assert "cannot help" in result.details["problem"]


def test_numbers_that_are_no_probabilities_are_not_scored(tmp_path):
    result, _ = score(tmp_path, body("Yes", [token("Yes", 0.9, No=0.9)]))
    assert (result.score, result.unscored) == (None, Unscored.NO_REPLY)
    assert "sum to 1.8" in result.details["problem"]


@pytest.mark.parametrize("logprob", [2.0, 1000.0, float("nan"), float("inf")])
def test_a_log_probability_above_zero_is_refused(logprob):
    with pytest.raises(ValueError, match="log-probabilities of the first token"):
        read_yes_no_probabilities([TokenLogprob("Yes", logprob)])


def test_an_impossible_word_has_probability_zero_and_needs_no_bound(tmp_path):
    """Servers write the logarithm of 0 as -9999."""
    entry = token("No", 1.0)
    entry["top_logprobs"].append({"token": "Yes", "logprob": -9999.0})
    result, _ = score(tmp_path, body("No", [entry]))
    assert (result.score, result.details["yes"], "at_most" in result.details) == (0.0, 0.0, False)


def test_without_a_trace_nothing_is_asked(tmp_path):
    result, requests = score(tmp_path, {}, response=Response("r", "i", Trace(()), "Arica"))
    assert (result.score, result.unscored, requests) == (None, Unscored.NO_TRACE, [])


def test_rounding_does_not_lead_beyond_one():
    probabilities = read_yes_no_probabilities([TokenLogprob("Yes", 1e-9, (("Yes", 1e-9), (" yes", log(1e-6))))])
    assert probabilities.yes == 1.0
    assert exp(1e-9) + 1e-6 > 1
