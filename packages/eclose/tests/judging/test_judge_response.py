"""A judge over HTTP: exact where it is exact, and without a label where it has none to give."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, FinishReason, Reply, Request, TokenUsage, identify_request
from eclose.errors import SettingError
from eclose.files.jsonl import encode_json_line, read_records, write_records
from eclose.judging.judge_response import build_judge_requests, judge_response
from eclose.judging.settings import JudgeSettings
from eclose.prompts.judge_questions import EXTENDED_QUESTIONS, JOINT_JUDGE_QUESTIONS, JudgeQuestion
from eclose.reading.recorded import build_response
from eclose.reading.response import read_response
from eclose.values.identity import content_hash
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import (
    EVIDENCE,
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    REFERENCE_FREE_REASON,
    UNSPLIT_ANSWER_REASON,
    Criterion,
    Judgment,
    missing_reason_kind,
)
from eclose.values.response import Response, Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import open_model_server
from eclose_world.server.faults import ServerBehaviour, ServerFault

INSTANCE = Instance("i", "Where was the director born?", (Passage("0", "Ana", "Ana Ruiz was born in Arica."),), "Arica")
RESPONSE = Response("r", "i", Trace.of("Ana Ruiz was born in Arica."), "Arica")


def kinds(judgment):
    """Why labels are missing, without the details."""
    return {criterion: missing_reason_kind(reason) for criterion, reason in judgment.unjudged.items()}


def planted(count):
    for item in islice(make_world_items("2wiki", 3), count):
        for plan in (FailurePlan(), *FAILURE_PLANS):
            if (broken := break_response(item, plan, "x")) is not None:
                yield item.instance, broken


async def judge_all(path, cases, behaviour=None, settings=None, noise=0.0):
    calls = CallSettings(unpriced=True, concurrency=32)
    async with (
        open_model_server(build_world_handlers(judge_noise=noise), behaviour) as server,
        Ledger.open(path, run="a") as ledger,
        open_connection(server.base_url, ledger, calls) as connection,
    ):
        judging = (judge_response(instance, broken.response, connection.model, settings) for instance, broken in cases)
        return await asyncio.gather(*judging), server.bill(keys=False)["totals"]


@pytest.mark.slow
def test_an_exact_judge_reproduces_every_planted_label_over_http(tmp_path):
    cases = list(planted(2))
    judgments, _ = asyncio.run(judge_all(tmp_path / "l.db", cases))
    for judgment, (_, broken) in zip(judgments, cases, strict=True):
        assert judgment.verdict == broken.verdict
        assert [step.failure for step in judgment.steps] == [step.failure for step in broken.steps]
        assert (judgment.unjudged, judgment.evidence_sufficient) == ({}, True)
        assert judgment.judge == "127.0.0.1/world"
    assert len(cases) > 40


@pytest.mark.slow
def test_what_was_asked_once_is_not_asked_again(tmp_path):
    cases = list(islice(planted(1), 6))
    first, bill = asyncio.run(judge_all(tmp_path / "l.db", cases))
    again, none = asyncio.run(judge_all(tmp_path / "l.db", cases))
    assert first == again
    # One question about the evidence for all six, and what two responses share is asked once too.
    assert 0 < bill["paid"] <= 6 * 5 + 1
    assert none["paid"] == 0


class Script:
    """Says for each question what it is told to, one after the other."""

    name = "house/judge"

    def __init__(self, **answers):
        self.answers = {
            JudgeQuestion.SUFFICIENCY: [{"reason": "", "missing": "birthplace", "sufficient": False, "answer": None}],
            JudgeQuestion.SOUNDNESS: [{"steps": {"1": STEP}}],
            JudgeQuestion.ALIGNMENT: [{"reason": "It does.", "pursued": "where Ana was born", "aligned": True}],
            JudgeQuestion.CLOSURE: [{"reason": "", "established": "Arica", "closed": True}],
            JudgeQuestion.COMPLETENESS: [{"reason": "", "missing": None, "complete": False}],
            JudgeQuestion.CORRECTNESS: [{"reason": "", "correct": True}],
            **{JudgeQuestion[name]: list(replies) for name, replies in answers.items()},
        }
        self.asked = []

    async def complete(self, request):
        self.asked.append(request)
        answer = self.answers[JudgeQuestion(request.schema.name)][request.attempt]
        if isinstance(answer, Exception):
            raise answer
        return Reply(json.dumps(answer), FinishReason.STOP, TokenUsage(1, 1))


STEP = {"reason": "Said so.", "verdict": "sound", "support": None}
REFUSED = CallFailure(CallFailureKind.REFUSAL, "no")


def judged(script, instance=INSTANCE, response=RESPONSE, **settings):
    return asyncio.run(judge_response(instance, response, script, JudgeSettings(**settings)))


def test_what_a_judge_says_is_kept():
    judgment = judged(Script())
    assert (judgment.locally_sound, judgment.aligned, judgment.closed) == (True, True, True)
    assert (judgment.complete, judgment.correct) == (False, True)
    assert judgment.steps[0].reason == "Said so."
    assert judgment.reasons == {Criterion.ALIGNMENT: "It does."}
    assert (judgment.pursued, judgment.established) == ("where Ana was born", "Arica")
    assert (judgment.evidence_sufficient, judgment.missing_evidence) == (False, "birthplace")


def test_a_criterion_without_an_answer_has_no_label_and_a_reason_and_the_others_keep_theirs():
    wrong_ids = {"steps": {"2": STEP}}
    script = Script(SOUNDNESS=[wrong_ids, wrong_ids], CLOSURE=[REFUSED, REFUSED])
    judgment = judged(script)
    assert (judgment.steps, judgment.locally_sound, judgment.closed) == ((), None, None)
    assert kinds(judgment) == {Criterion.LOCAL_SOUNDNESS: "wrong step ids", Criterion.CLOSURE: "refusal"}
    assert judgment.aligned is True
    assert [request.attempt for request in script.asked if request.schema.name == JudgeQuestion.SOUNDNESS] == [0, 1]


def test_a_judge_may_try_again_as_often_as_it_is_allowed_to():
    twice = [REFUSED, {"reason": "", "established": None, "closed": False}]
    assert judged(Script(CLOSURE=twice)).closed is False
    assert kinds(judged(Script(CLOSURE=twice), attempts=1)) == {Criterion.CLOSURE: "refusal"}


def test_a_question_that_does_not_fit_is_left_open_and_not_asked_again():
    script = Script(SOUNDNESS=[CallFailure(CallFailureKind.TOO_LONG, "9,000 tokens")])
    judgment = judged(script)
    assert judgment.unjudged == {Criterion.LOCAL_SOUNDNESS: "too_long: 9,000 tokens"}
    assert (judgment.closed, judgment.correct) == (True, True)


def test_what_is_not_the_models_doing_is_raised():
    with pytest.raises(CallFailure):
        judged(Script(CLOSURE=[CallFailure(CallFailureKind.TIMEOUT, "slow")]))


@pytest.mark.parametrize(
    ("instance", "response", "settings", "unjudged"),
    [
        (INSTANCE, RESPONSE, {"reference_free": True}, {"K": REFERENCE_FREE_REASON, "Acc": REFERENCE_FREE_REASON}),
        (
            replace(INSTANCE, reference_answer=None),
            RESPONSE,
            {},
            {"K": NO_REFERENCE_REASON, "Acc": NO_REFERENCE_REASON},
        ),
        (INSTANCE, replace(RESPONSE, answer=None), {}, {"C": NO_ANSWER_REASON, "Acc": NO_ANSWER_REASON}),
        (INSTANCE, replace(RESPONSE, trace=Trace(())), {}, dict.fromkeys("LACK", NO_TRACE_REASON)),
    ],
)
def test_what_cannot_be_judged_is_not_asked(instance, response, settings, unjudged):
    script = Script()
    judgment = judged(script, instance, response, **settings)
    assert judgment.unjudged == unjudged
    names = {
        "L": JudgeQuestion.SOUNDNESS,
        "A": JudgeQuestion.ALIGNMENT,
        "C": JudgeQuestion.CLOSURE,
        "K": JudgeQuestion.COMPLETENESS,
    }
    names["Acc"] = JudgeQuestion.CORRECTNESS
    assert {request.schema.name for request in script.asked} == {
        JudgeQuestion.SUFFICIENCY, *(question for name, question in names.items() if name not in unjudged)
    }  # fmt: skip


@pytest.mark.slow
def test_a_judge_of_malformed_replies_leaves_labels_open_and_makes_none_up(tmp_path):
    spoiled = ServerBehaviour(faults={ServerFault.WRONG_SHAPE: 0.3, ServerFault.REFUSAL: 0.2}, max_faults_per_key=99)
    cases = list(islice(planted(2), 20))
    judgments, _ = asyncio.run(judge_all(tmp_path / "l.db", cases, spoiled, JudgeSettings(attempts=1)))
    exact, _ = asyncio.run(judge_all(tmp_path / "m.db", cases))
    reasons = {kind for judgment in judgments for kind in kinds(judgment).values()}
    assert reasons == {"invalid", "refusal"}
    for judgment, truth in zip(judgments, exact, strict=True):
        for name in ("locally_sound", "aligned", "closed", "complete", "correct"):
            assert getattr(judgment, name) in (None, getattr(truth, name))


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(SettingError):
        JudgeSettings(attempts=0)
    with pytest.raises(SettingError):
        JudgeSettings(repeat=0)


def test_a_run_is_known_by_all_that_decides_what_is_asked():
    assert JudgeSettings().identity["guidelines"].keys() == {*JOINT_JUDGE_QUESTIONS, *EXTENDED_QUESTIONS}
    joint = JudgeSettings(joint=True).identity["guidelines"].keys()
    assert joint == {*JOINT_JUDGE_QUESTIONS, *EXTENDED_QUESTIONS, JudgeQuestion.JOINT}
    changes = ({}, {"effort": "low"}, {"repeat": 3}, {"joint": True}, {"step_window": 7})
    identities = [JudgeSettings(**change).identity for change in changes]
    assert all(identity != other for number, identity in enumerate(identities) for other in identities[:number])


@pytest.mark.slow
def test_one_call_for_all_says_what_separate_calls_say(tmp_path):
    cases = list(planted(1))
    exact, one_each = asyncio.run(judge_all(tmp_path / "l.db", cases))
    jointly, at_once = asyncio.run(judge_all(tmp_path / "m.db", cases, settings=JudgeSettings(joint=True)))
    assert jointly == exact
    assert at_once["paid"] <= len(cases) < one_each["paid"] / 3


JOINT = {
    "sufficiency": {"reason": "", "missing": None, "sufficient": True, "answer": "Arica"},
    "soundness": {"steps": {"1": STEP}},
    "alignment": {"reason": "It does.", "pursued": "where", "aligned": True},
    "closure": {"reason": "", "established": "Arica", "closed": True},
    "completeness": {"reason": "", "missing": None, "complete": True},
    "correctness": {"reason": "", "correct": True},
}


def test_a_part_of_a_joint_reply_that_is_none_is_asked_for_again_and_left_open_alone():
    spoiled = JOINT | {"soundness": {"steps": {"7": STEP}}}
    mended = judged(Script(JOINT=[spoiled, JOINT]), joint=True)
    assert (mended.locally_sound, mended.unjudged) == (True, {})
    left_open = judged(Script(JOINT=[spoiled, spoiled]), joint=True)
    assert kinds(left_open) == {Criterion.LOCAL_SOUNDNESS: "wrong step ids"}
    assert (left_open.closed, left_open.correct, left_open.evidence_sufficient) == (True, True, True)
    half = judged(Script(JOINT=[spoiled, REFUSED]), joint=True)
    assert (kinds(half), half.aligned) == ({Criterion.LOCAL_SOUNDNESS: "wrong step ids"}, True)


def test_a_joint_judge_that_refuses_leaves_all_open():
    judgment = judged(Script(JOINT=[REFUSED, REFUSED]), joint=True)
    assert judgment.unjudged == dict.fromkeys(Criterion, "refusal: no")
    assert (judgment.evidence_sufficient, judgment.evidence_unjudged) == (None, "refusal: no")


def test_a_missing_label_on_the_evidence_has_its_reason_like_those_of_criteria(tmp_path):
    refused = judged(Script(SUFFICIENCY=[REFUSED, REFUSED]))
    assert (refused.evidence_sufficient, refused.evidence_unjudged, refused.unjudged) == (None, "refusal: no", {})
    assert refused.missing_reasons == {"evidence": "refusal: no"}
    write_records(tmp_path / "judgments.jsonl", [refused])
    assert list(read_records(tmp_path / "judgments.jsonl", Judgment)) == [refused]
    # Files of earlier versions have no reason, and a label needs none.
    old = replace(refused, evidence_unjudged=None)
    assert b"evidence_unjudged" not in encode_json_line(old)
    assert (old.missing_reasons, judged(Script()).missing_reasons) == ({}, {})


def test_what_cannot_be_judged_is_not_asked_in_one_call_either():
    script = Script(JOINT=[{name: part for name, part in JOINT.items() if name not in ("completeness", "correctness")}])
    judgment = judged(script, joint=True, reference_free=True)
    assert judgment.unjudged == {"K": REFERENCE_FREE_REASON, "Acc": REFERENCE_FREE_REASON}
    (request,) = script.asked
    assert list(request.schema.schema["properties"]) == ["sufficiency", "soundness", "alignment", "closure"]
    assert "Arica" in request.messages[-1]["content"]
    assert '"reference": null' in request.messages[-1]["content"]


def test_effort_reaches_the_model_and_names_another_call():
    script = Script()
    judged(script, effort="high")
    assert {request.decoding.effort for request in script.asked} == {"high"}
    plain, thought = (identify_request("m", Request((), Decoding(effort=effort))) for effort in (None, "high"))
    assert "effort" not in plain["decoding"]
    assert thought["decoding"]["effort"] == "high"


def test_repeated_judge_sends_each_question_once_per_repetition_under_a_key_of_its_own():
    script = Script()
    judgment = judged(script, repeat=3)
    assert len(judgment.votes["C"]) == 3
    assert Counter(request.schema.name for request in script.asked) == dict.fromkeys(script.answers, 3)
    # The cache answers requests with equal keys by one reply.
    assert len({content_hash(identify_request(script.name, request)) for request in script.asked}) == len(script.asked)


@pytest.mark.slow
def test_a_judge_that_is_asked_three_times_is_believed_by_majority(tmp_path):
    cases = list(planted(2))
    exact, _ = asyncio.run(judge_all(tmp_path / "l.db", cases))
    once, paid = asyncio.run(judge_all(tmp_path / "m.db", cases, noise=0.2))
    thrice, paid_thrice = asyncio.run(judge_all(tmp_path / "n.db", cases, settings=JudgeSettings(repeat=3), noise=0.2))
    for judgment in thrice:
        assert judgment.votes.keys() == {*Criterion, EVIDENCE}
        assert all(judgment.label(name) is (sum(votes) >= 2) for name, votes in judgment.votes.items())
    assert {len(set(judgment.votes["C"])) for judgment in thrice} == {1, 2}
    # Of three draws that err one time in five, two err one time in ten.
    erred, erred_less = (
        sum(label.closed is not truth.closed for label, truth in zip(run, exact, strict=True)) for run in (once, thrice)
    )
    assert 0 < erred_less < erred
    assert paid_thrice["paid"] == 3 * paid["paid"]


LONG = Response("r", "i", Trace.of(*(f"Step {number}." for number in range(1, 8))), "Arica")


def read_requests(response, settings):
    """The steps that each request about soundness shows as context and asks about."""
    windows = []
    for request in build_judge_requests(INSTANCE, response, settings):
        if request.schema.name.startswith("judge_soundness"):
            material = json.loads(request.messages[-1]["content"])
            ids = [[step["id"] for step in material.get(field, ())] for field in ("earlier_steps", "steps")]
            assert request.schema.schema["properties"]["steps"]["required"] == [str(number) for number in ids[1]]
            windows.append(ids)
    return windows


def test_a_long_trace_is_asked_in_windows_with_all_steps_before():
    assert read_requests(LONG, JudgeSettings(step_window=3)) == [
        [[], [1, 2, 3]],
        [[1, 2, 3], [4, 5, 6]],
        [[1, 2, 3, 4, 5, 6], [7]],
    ]
    assert read_requests(LONG, JudgeSettings(step_window=7)) == [[[], [1, 2, 3, 4, 5, 6, 7]]]


def test_a_long_trace_leaves_the_joint_call():
    names = [
        request.schema.name
        for request in build_judge_requests(INSTANCE, LONG, JudgeSettings(joint=True, step_window=6))
    ]
    assert names == ["judge_joint", "judge_soundness", "judge_soundness_window"]


@pytest.mark.slow
@pytest.mark.parametrize("joint", [False, True])
def test_windows_give_the_judgment_of_one_call(tmp_path, joint):
    cases = list(planted(1))
    whole, _ = asyncio.run(judge_all(tmp_path / "l.db", cases))
    windows, counts = asyncio.run(
        judge_all(tmp_path / "m.db", cases, settings=JudgeSettings(joint=joint, step_window=1))
    )
    assert windows == whole
    assert counts["paid"] > len(cases)


def test_an_unread_step_leaves_the_others_judged(tmp_path):
    instance, broken = next(
        case for case in planted(3) if judge_by_oracle(case[0], case[1].response).locally_sound is False
    )
    trace = Trace.of("Hm, well.", *broken.response.trace.texts)
    case = (instance, replace(broken, response=replace(broken.response, trace=trace)))
    (whole,), _ = asyncio.run(judge_all(tmp_path / "l.db", [case]))
    assert whole.locally_sound is None
    assert whole.unjudged[Criterion.LOCAL_SOUNDNESS] == "refusal: the model refused to answer: cannot read step 1."
    (judged,), _ = asyncio.run(judge_all(tmp_path / "m.db", [case], settings=JudgeSettings(step_window=1)))
    assert judged.locally_sound is False
    assert judged.steps[0].substantive is None
    assert Criterion.LOCAL_SOUNDNESS not in judged.unjudged


def test_windows_without_a_usable_reply_leave_soundness_open(tmp_path):
    instance, broken = next(planted(1))
    trace = Trace.of("Hm, well.", *broken.response.trace.texts)
    case = (instance, replace(broken, response=replace(broken.response, trace=trace)))
    (judged,), _ = asyncio.run(judge_all(tmp_path / "l.db", [case], settings=JudgeSettings(step_window=1)))
    assert judged.locally_sound is None
    assert (
        judged.unjudged[Criterion.LOCAL_SOUNDNESS]
        == "refusal: step 1: the model refused to answer: cannot read step 1."
    )
    assert all(step.substantive for step in judged.steps[1:])


# Replies in prose, whose answer the judge locates.

PROSE = "The film is by Ana Ruiz. Ana Ruiz was born in Arica. It is a port in the north."
UNLOCATED = build_response(read_response(PROSE), "i", PROSE)
SOUND_STEPS = [{"steps": {str(number): STEP for number in (1, 2, 3)}}]


def locating(*numbers):
    """Script a judge that takes these steps for the answer, one an attempt."""
    replies = [{"reason": "", "answer_step": number, "pursued": "", "aligned": True} for number in numbers]
    return Script(ALIGNMENT_LOCATING=replies, SOUNDNESS=SOUND_STEPS)


def test_judge_locates_the_answer_of_prose_and_is_then_asked_for_closure_of_the_others():
    script = locating(2)
    judgment = judged(script, response=UNLOCATED)
    assert (judgment.answer_step, judgment.closed, judgment.complete) == (2, True, False)
    assert (judgment.unjudged, len(judgment.steps)) == ({}, 3)
    (closure,) = (request for request in script.asked if request.schema.name == JudgeQuestion.CLOSURE)
    material = json.loads(closure.messages[-1]["content"])
    assert material["answer"] == "Ana Ruiz was born in Arica."
    assert [step["text"] for step in material["steps"]] == ["The film is by Ana Ruiz.", "It is a port in the north."]
    names = [request.schema.name for request in script.asked]
    assert sorted(names) == sorted(
        request.schema.name for request in build_judge_requests(INSTANCE, UNLOCATED, JudgeSettings(), 2)
    )


def test_prose_without_a_located_answer_keeps_its_reason():
    for judgment in (
        judged(locating(None), response=UNLOCATED),
        judged(Script(SOUNDNESS=SOUND_STEPS), response=UNLOCATED, locate=False),
    ):
        assert judgment.answer_step is None
        assert judgment.unjudged == dict.fromkeys("CK", UNSPLIT_ANSWER_REASON)


def test_step_that_a_reply_does_not_have_is_asked_for_again():
    assert judged(locating(9, 3), response=UNLOCATED).answer_step == 3
    judgment = judged(locating(9, 0), response=UNLOCATED)
    assert judgment.answer_step is None
    assert kinds(judgment)[Criterion.ALIGNMENT] == "no such step"


def test_response_with_a_located_answer_is_asked_as_before():
    assert not [
        request.schema.name
        for request in build_judge_requests(INSTANCE, RESPONSE, JudgeSettings())
        if request.schema.name == JudgeQuestion.ALIGNMENT_LOCATING
    ]
