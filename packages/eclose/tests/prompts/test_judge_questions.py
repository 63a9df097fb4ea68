"""A reply is read or refused; it is never repaired."""

from __future__ import annotations

import jsonschema_rs
import pytest

from eclose.prompts.disclosure import JointJudgeMaterial, SoundnessMaterial
from eclose.prompts.judge_questions import JudgeQuestion, build_judge_prompt, encode_step_judgment, parse_step_judgments
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose.prompts.structured import InconsistentReplyError
from eclose.values.judgment import LocalFailure, StepJudgment, StepSupport

SHOWN = SoundnessMaterial(
    "Where was the director born?",
    (
        DisclosedPassage(0, "Blue Harbour", "A film directed by\nAna Ruiz."),
        DisclosedPassage(1, "Ana Ruiz", "Born in Arica."),
    ),
    (DisclosedStep(1, "Plan."), DisclosedStep(2, "Ana Ruiz directed it."), DisclosedStep(3, "She was born in Lima.")),
)


def entry(verdict="sound", support=None, reason=""):
    return {"reason": reason, "verdict": verdict, "support": support}


def quoting(passage, quote, **more):
    return entry(support={"passage": passage, "quote": quote}, **more)


PLAN = entry("not substantive")
FACT = quoting(0, "directed by Ana Ruiz", reason="It says so.")
WRONG = entry("L1")
WHOLE = {"1": PLAN, "2": FACT, "3": WRONG}
JUDGED = (
    StepJudgment(substantive=False),
    StepJudgment(True, True, None, StepSupport(0, "directed by Ana Ruiz"), "It says so."),
    StepJudgment(True, False, LocalFailure.UNSUPPORTED_CONTENT),
)


def test_steps_are_joined_by_id_in_whatever_order_they_come():
    assert parse_step_judgments(SHOWN, {"steps": dict(reversed(WHOLE.items()))}) == JUDGED


def test_what_is_told_is_what_is_read():
    assert {str(number): encode_step_judgment(step) for number, step in enumerate(JUDGED, 1)} == WHOLE


def test_the_shape_has_room_for_exactly_the_steps_that_were_shown():
    shape = jsonschema_rs.validator_for(dict(build_judge_prompt(SHOWN).schema))
    assert shape.is_valid({"steps": WHOLE})
    for wrong in (
        {},
        {"1": PLAN, "2": FACT},
        WHOLE | {"4": FACT},
        WHOLE | {"3": entry("unsound")},
        WHOLE | {"3": entry(None)},
        {"01": PLAN, "2": FACT, "3": WRONG},
    ):
        assert not shape.is_valid({"steps": wrong}), wrong


def test_a_joint_shape_is_as_strict_about_steps():
    everything = JointJudgeMaterial(SHOWN.question, SHOWN.evidence, SHOWN.steps, "Lima", "Arica", ())
    shape = jsonschema_rs.validator_for(dict(build_judge_prompt(everything, (JudgeQuestion.SOUNDNESS,)).schema))
    assert shape.is_valid({"soundness": {"steps": WHOLE}})
    assert not shape.is_valid({"soundness": {"steps": {"1": PLAN}}})


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("wrong step ids", {"1": PLAN, "2": FACT}),
        ("wrong step ids", WHOLE | {"4": FACT}),
        ("wrong step ids", {"1": PLAN, "2": FACT, "0": WRONG}),
        ("wrong step ids", {}),
        ("no such passage", WHOLE | {"2": quoting(2, "directed by Ana Ruiz")}),
        ("no such passage", WHOLE | {"2": quoting(-1, "Born in Arica.")}),
        ("quote not found", WHOLE | {"2": quoting(1, "directed by Ana Ruiz")}),
        ("quote not found", WHOLE | {"2": quoting(0, "Directed by Ana Ruiz")}),
        ("quote not found", WHOLE | {"2": quoting(0, " ")}),
        ("quote too short", WHOLE | {"2": quoting(0, "a")}),
        ("quote too short", WHOLE | {"2": quoting(0, "by Ana")}),
    ],
)
def test_what_is_no_judgement_of_these_steps_is_refused(kind, steps):
    with pytest.raises(InconsistentReplyError) as refused:
        parse_step_judgments(SHOWN, {"steps": steps})
    assert refused.value.kind == kind


def test_white_space_apart_a_quote_is_verbatim():
    judgments = parse_step_judgments(SHOWN, {"steps": WHOLE | {"2": quoting(0, "directed  by Ana\n Ruiz.")}})
    assert judgments[1].support == StepSupport(0, "directed  by Ana\n Ruiz.")
    title = parse_step_judgments(SHOWN, {"steps": WHOLE | {"2": quoting(0, "Blue Harbour")}})
    assert title[1].support is not None
