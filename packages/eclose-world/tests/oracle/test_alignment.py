"""What a trace pursues, judged by the question and the trace alone."""

import pytest

from eclose.values.response import Trace
from eclose_world.language.questions import parse_question
from eclose_world.language.steps import parse_trace_claims
from eclose_world.oracle.closure import AlignmentTracer

MOTHER = "Who is the mother of the director of Paper Lighthouse?"
EARLIER = "Which film was released first, Paper Lighthouse or Silent Orchard?"
OLDER = "Which film's director is older, Paper Lighthouse or Silent Orchard?"
SAME = "Were Paper Lighthouse and Silent Orchard directed by the same person?"
LIFE = "How many calendar years did the director of Paper Lighthouse live?"
DID_BOTH = "the person who directed Paper Lighthouse and wrote Salt Letters"
BEYOND = f"Where was {DID_BOTH} born?"
LIVED = "The number of years between the birth date of Tomas Rell and the death date of Tomas Rell is 60."
DIRECTED, WROTE = "Paper Lighthouse was directed by Tomas Rell.", "Tomas Rell wrote Salt Letters."


def aligned(question, *steps):
    target, claims = parse_question(question), parse_trace_claims(Trace.of(*steps))
    assert target is not None
    assert claims is not None, steps
    main_line = AlignmentTracer(target).find_main_line(claims)
    return main_line[0] if main_line else None


ALIGNED = [
    # All the way, a part of the way, with false values, with a foreign step that is not the last.
    (MOTHER, [DIRECTED, "Petra Lind was the mother of Tomas Rell."]),
    (MOTHER, [DIRECTED]),
    (MOTHER, ["Paper Lighthouse was directed by Nobody Known."]),
    (MOTHER, [DIRECTED, "Nora Quist was the mother of Tomas Rell."]),
    (MOTHER, ["Halmere has 52,300 inhabitants.", DIRECTED]),
    (MOTHER, [DIRECTED, "Let us read the passages."]),
    (MOTHER, ["The mother of the director of the film Paper Lighthouse is Petra Lind."]),
    # By another name of the person.
    (MOTHER, [DIRECTED, "Tom Holm is also known as Tomas Rell.", "Petra Lind was the mother of Tom Holm."]),
    (MOTHER, [DIRECTED, "Tomas Rell is also known as Tom Holm.", "Petra Lind was the mother of Tom Holm."]),
    (MOTHER, [DIRECTED, "Paper Lighthouse came out in 1971.", "Tom Holm is also known as Tomas Rell.",
              "Petra Lind was the mother of Tom Holm."]),
    # Abstaining and denying about the target.
    (MOTHER, ["The passages do not state the mother of the director of Paper Lighthouse."]),
    (MOTHER, [DIRECTED, "There is no information about the mother of Tomas Rell."]),
    (MOTHER, [DIRECTED, "It is not the case that Petra Lind was the mother of Tomas Rell."]),
    # Comparisons, in any order of the two.
    (EARLIER, ["Silent Orchard came out in 1980."]),
    (EARLIER, ["Silent Orchard was released after Paper Lighthouse."]),
    (EARLIER, ["Silent Orchard was released first."]),
    (OLDER, [DIRECTED, "Silent Orchard was directed by Nora Quist.", "Nora Quist is older than Tomas Rell."]),
    (OLDER, [DIRECTED, "Tomas Rell was born on 3 May 1930."]),
    (OLDER, ["Paper Lighthouse has the director who was born first."]),
    (SAME, ["Silent Orchard and Paper Lighthouse were directed by different people."]),
    (LIFE, [DIRECTED, "Tomas Rell died on 4 July 1990."]),
    (LIFE, [DIRECTED, LIVED]),
    # A side that the trace does not explain is a gap, not another goal; a stray fact is none either.
    (OLDER, [DIRECTED, "Tomas Rell is older than Nora Quist."]),
    (MOTHER, [DIRECTED, "Petra Lind was the mother of Nora Quist."]),
    (MOTHER, [DIRECTED, "Halmere has 52,300 inhabitants."]),
    (MOTHER, [DIRECTED, "Petra Lind was the mother of Tomas Rell.", "Nora Quist was born in Halmere."]),
    # The order of the steps does not matter, and a trace may go on after a conclusion.
    (MOTHER, ["Petra Lind was the mother of Tomas Rell.", DIRECTED]),
    (MOTHER, ["Paper Lighthouse was released before Silent Orchard.", DIRECTED]),
    (MOTHER, ["The mother of the director of Paper Lighthouse is Petra Lind.", "Halmere has 52,300 inhabitants."]),
    # Two branches.
    (BEYOND, [WROTE]),
    (BEYOND, [f"The passages do not state the birthplace of {DID_BOTH}."]),
    (BEYOND, [DIRECTED, WROTE, "Tomas Rell was born in Halmere."]),
    (BEYOND, [DIRECTED, "Tomas Rell was born in Halmere."]),
    (BEYOND, [f"Tomas Rell is {DID_BOTH}."]),
]  # fmt: skip
MISALIGNED = [
    # Another relation, another entity, another person on the way, a step too far.
    (MOTHER, [DIRECTED, "The father of Tomas Rell was Ivan Rell."]),
    (MOTHER, ["Silent Orchard was directed by Nora Quist.", "Petra Lind was the mother of Nora Quist."]),
    (MOTHER, ["Silent Orchard was directed by Nora Quist."]),
    (MOTHER, [DIRECTED, "Petra Lind was the mother of Tomas Rell.", "Petra Lind was born in Halmere."]),
    (MOTHER, ["Paper Lighthouse was scripted by Tomas Rell.", "Petra Lind was the mother of Tomas Rell."]),
    (MOTHER, ["The passages do not state the father of the director of Paper Lighthouse."]),
    (MOTHER, [DIRECTED, "It is not the case that Tomas Rell was born in Halmere."]),
    # A kind of answer that was not asked for.
    (MOTHER, [DIRECTED, "Paper Lighthouse was released before Silent Orchard."]),
    (MOTHER, [DIRECTED, "Paper Lighthouse was released first."]),
    (MOTHER, ["Paper Lighthouse and Silent Orchard were directed by the same person."]),
    (MOTHER, [LIVED]),
    (EARLIER, [DIRECTED]),
    (LIFE, [DIRECTED, "Tomas Rell was born in Halmere."]),
    # Later instead of earlier, another pair, another attribute, a winner of another comparison.
    (EARLIER, ["Paper Lighthouse was released later."]),
    (EARLIER, ["Paper Lighthouse was released before Golden Tide."]),
    (EARLIER, ["Paper Lighthouse was released before Golden Tide.", "Paper Lighthouse was released first."]),
    (EARLIER, ["Golden Tide was released first."]),
    (EARLIER, ["Paper Lighthouse is shorter than Silent Orchard."]),
    (OLDER, [DIRECTED, "Golden Tide was directed by Nora Quist.", "Nora Quist is older than Tomas Rell."]),
    (OLDER, ["The director of Paper Lighthouse is older than the director of Golden Tide."]),
    (LIFE, ["Paper Lighthouse was released before Silent Orchard."]),
    (OLDER, ["Paper Lighthouse has the screenwriter who is older."]),
    (SAME, ["Golden Tide and Paper Lighthouse were directed by different people."]),
    (SAME, ["Paper Lighthouse and Silent Orchard lie in the same country."]),
    (BEYOND, [DIRECTED, WROTE, "Tomas Rell died in Halmere."]),
    (BEYOND, ["Nora Quist wrote Golden Tide.", "Nora Quist was born in Halmere."]),
]  # fmt: skip


@pytest.mark.parametrize(("question", "steps"), ALIGNED)
def test_on_the_way_to_the_target(question, steps):
    assert aligned(question, *steps) is True


@pytest.mark.parametrize(("question", "steps"), MISALIGNED)
def test_off_the_way(question, steps):
    assert aligned(question, *steps) is False


@pytest.mark.parametrize(
    "steps",
    [
        [],
        ["Let us read the passages."],
        ["1971 - 1930 = 41."],
        ["1971 is later than 1930."],
        ["Tomas Rell is also known as Tom Holm."],
    ],
)
def test_without_a_goal_nothing_is_said_of_alignment(steps):
    assert aligned(MOTHER, *steps) is None


def test_a_comparison_that_returns_to_the_question_is_forgiven():
    strayed, back = (
        "Paper Lighthouse was released before Golden Tide.",
        "Paper Lighthouse was released before Silent Orchard.",
    )
    chosen = "Paper Lighthouse was released first."
    assert aligned(EARLIER, strayed, chosen) is False
    assert aligned(EARLIER, strayed, back, chosen) is True


def test_the_deciding_claim_is_told():
    claims = parse_trace_claims(Trace.of(DIRECTED, "The father of Tomas Rell was Ivan Rell.", "1 is less than 2."))
    assert AlignmentTracer(parse_question(MOTHER)).find_main_line(claims) == (False, claims[1])
