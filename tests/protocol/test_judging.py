"""A reply is read or refused; it is never repaired."""

from __future__ import annotations

import pytest

from eclosure.core.judgment import LocalFailure, StepJudgment, Support
from eclosure.protocol.disclosure import Soundness
from eclosure.protocol.judging import read_steps
from eclosure.protocol.material import ShownPassage, ShownStep
from eclosure.protocol.structured import UnreadableReplyError

SHOWN = Soundness(
    "Where was the director born?",
    (ShownPassage(0, "Blue Harbour", "A film directed by\nAna Ruiz."), ShownPassage(1, "Ana Ruiz", "Born in Arica.")),
    (ShownStep(1, "Plan."), ShownStep(2, "Ana Ruiz directed it."), ShownStep(3, "She was born in Lima.")),
)


def entry(number, **more):
    return {
        "id": number, "reason": "", "substantive": True, "sound": True, "code": None, "support": None, **more
    }  # fmt: skip


def reply(*entries):
    return {"steps": entries}


PLAN = entry(1, substantive=False, sound=None)
FACT = entry(2, support={"passage": 0, "quote": "directed by Ana Ruiz"}, reason="It says so.")
WRONG = entry(3, sound=False, code="L1")


def test_steps_are_joined_by_id_in_whatever_order_they_come():
    assert read_steps(SHOWN, reply(WRONG, PLAN, FACT)) == (
        StepJudgment(substantive=False),
        StepJudgment(True, True, None, Support(0, "directed by Ana Ruiz"), "It says so."),
        StepJudgment(True, False, LocalFailure.UNSUPPORTED_CONTENT),
    )


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        ("wrong step ids", [PLAN, FACT]),
        ("wrong step ids", [PLAN, FACT, FACT]),
        ("wrong step ids", [PLAN, FACT, WRONG, entry(4)]),
        ("wrong step ids", [PLAN, FACT, entry(0, sound=False, code="L1")]),
        ("wrong step ids", []),
        ("contradictory step", [PLAN, FACT, entry(3, sound=False)]),
        ("contradictory step", [PLAN, FACT, entry(3, sound=True, code="L2")]),
        ("contradictory step", [PLAN, FACT, entry(3, sound=None)]),
        ("contradictory step", [entry(1, substantive=False, sound=True), FACT, WRONG]),
        ("contradictory step", [entry(1, substantive=False, sound=None, code="L1"), FACT, WRONG]),
        ("no such passage", [PLAN, entry(2, support={"passage": 2, "quote": "directed by Ana Ruiz"}), WRONG]),
        ("no such passage", [PLAN, entry(2, support={"passage": -1, "quote": "Born in Arica."}), WRONG]),
        ("quote not found", [PLAN, entry(2, support={"passage": 1, "quote": "directed by Ana Ruiz"}), WRONG]),
        ("quote not found", [PLAN, entry(2, support={"passage": 0, "quote": "Directed by Ana Ruiz"}), WRONG]),
        ("quote not found", [PLAN, entry(2, support={"passage": 0, "quote": " "}), WRONG]),
    ],
)
def test_what_is_no_judgement_of_these_steps_is_refused(kind, entries):
    with pytest.raises(UnreadableReplyError) as refused:
        read_steps(SHOWN, reply(*entries))
    assert refused.value.kind == kind


def test_white_space_apart_a_quote_is_verbatim():
    found = read_steps(SHOWN, reply(PLAN, entry(2, support={"passage": 0, "quote": "directed  by Ana\n Ruiz."}), WRONG))
    assert found[1].support == Support(0, "directed  by Ana\n Ruiz.")
    title = read_steps(SHOWN, reply(PLAN, entry(2, support={"passage": 0, "quote": "Blue Harbour"}), WRONG))
    assert title[1].support is not None
