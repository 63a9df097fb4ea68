"""What claims establish when they are taken as true, and nothing but the claims."""

import pytest

from eclose.values.response import Trace
from eclose_world.language.questions import parse_question
from eclose_world.language.steps import parse_trace_claims
from eclose_world.oracle.closure import ABSTENTION_ANSWER, TracePremises, find_extreme_option

MOTHER = "Who is the mother of the director of Paper Lighthouse?"
OLDER = "Which film's director is older, Paper Lighthouse or Silent Orchard?"
EARLIER = "Which film was released first, Paper Lighthouse or Silent Orchard?"
SAME = "Were Paper Lighthouse and Silent Orchard directed by the same person?"
SPAN = (
    "How many years lie between the birth date of the director of Paper Lighthouse and "
    "the release year of Paper Lighthouse?"
)
BOTH = "Who directed Paper Lighthouse and wrote Salt Letters?"
BEYOND = "Where was the person who directed Paper Lighthouse and wrote Salt Letters born?"
DIRECTED, BORE_HIM = "Paper Lighthouse was directed by Tomas Rell.", "Petra Lind was the mother of Tomas Rell."


def derive_answers(question, *steps):
    target, claims = parse_question(question), parse_trace_claims(Trace.of(*steps))
    assert target is not None
    assert claims is not None, steps
    return TracePremises(claims).derive_answers(target)


@pytest.mark.parametrize(
    ("question", "steps", "answers"),
    [
        # A chain, link by link, in any order, and its conclusion alone.
        (MOTHER, [DIRECTED, BORE_HIM], ["Petra Lind"]),
        (MOTHER, [BORE_HIM, DIRECTED], ["Petra Lind"]),
        (MOTHER, ["The mother of the director of Paper Lighthouse is Petra Lind."], ["Petra Lind"]),
        # What is said outright counts before what can be put together.
        (MOTHER, [DIRECTED, BORE_HIM,
                  "So the mother of the director of Paper Lighthouse is Ines Varga."], ["Ines Varga"]),
        # A missing link leads nowhere, at either end.
        (MOTHER, [DIRECTED], []),
        (MOTHER, [BORE_HIM], []),
        (MOTHER, [], []),
        # Another name counts if the trace says so, whichever way round.
        (MOTHER, ["Paper Lighthouse was directed by Tom Holm.", BORE_HIM], []),
        (MOTHER, ["Paper Lighthouse was directed by Tom Holm.", "Tomas Rell is also known as Tom Holm.",
                  BORE_HIM], ["Petra Lind"]),
        (MOTHER, ["Paper Lighthouse was directed by Tom Holm.", "Tom Holm is also known as Tomas Rell.",
                  "Tomas Rell is also known as Tom Holm.", BORE_HIM], ["Petra Lind"]),
        # Two values establish neither.
        (MOTHER, ["The mother of the director of Paper Lighthouse is Petra Lind.",
                  "The mother of the director of Paper Lighthouse is Ines Varga."], ["Petra Lind", "Ines Varga"]),
        (MOTHER, [DIRECTED, "Paper Lighthouse was directed by Nora Quist.",
                  BORE_HIM, "Ines Varga was the mother of Nora Quist."],
         ["Petra Lind", "Ines Varga"]),
        # Abstention: of the value, or of something on the way to it; not of something else.
        (MOTHER, ["The passages do not state the mother of the director of Paper Lighthouse."], [ABSTENTION_ANSWER]),
        (MOTHER, ["None of the passages gives the director of Paper Lighthouse."], [ABSTENTION_ANSWER]),
        (MOTHER, [DIRECTED, "There is no information about the mother of Tomas Rell."], [ABSTENTION_ANSWER]),
        (MOTHER, ["The passages do not state the mother of Nora Quist."], []),
        (MOTHER, ["The passages do not state the birth date of the director of Paper Lighthouse."], []),
        # A value that is stated beats the claim that it is not.
        (MOTHER, ["The mother of the director of Paper Lighthouse is Petra Lind.",
                  "The passages do not state the mother of the director of Paper Lighthouse."], ["Petra Lind"]),
        # Whoever did both.
        (BOTH, [DIRECTED, "Tomas Rell wrote Salt Letters."], ["Tomas Rell"]),
        (BOTH, [DIRECTED, "Nora Quist wrote Salt Letters."], []),
        (BOTH, [DIRECTED], []),
        (BOTH, ["Tomas Rell is the person who directed Paper Lighthouse and wrote Salt Letters."], ["Tomas Rell"]),
        (BOTH, ["There is no information about the author of Salt Letters."], [ABSTENTION_ANSWER]),
        (BEYOND, [DIRECTED, "Tomas Rell wrote Salt Letters.",
                  "Tomas Rell was born in Halmere."], ["Halmere"]),
        (BEYOND, ["Tomas Rell was born in Halmere."], []),
        # Comparisons: from two values, from the comparison, from the choice.
        (EARLIER, ["Paper Lighthouse came out in 1971.", "Silent Orchard came out in 1980."], ["Paper Lighthouse"]),
        (EARLIER, ["Paper Lighthouse came out in 1971.", "Silent Orchard came out in 1971."], []),
        (EARLIER, ["Paper Lighthouse came out in 1971."], []),
        (EARLIER, ["1971 is earlier than 1980."], []),
        # A value that is no date cannot be compared.
        (OLDER, [DIRECTED, "Tomas Rell was born on January 00 January 1925.",
                 "Silent Orchard was directed by Nora Quist.", "Nora Quist was born on 3 May 1930."], []),
        (OLDER, ["The birth date of the director of Silent Orchard is January 00 January 1925.",
                 "The birth date of the director of Paper Lighthouse is 3 May 1930."], []),
        (SPAN, [DIRECTED, "Tomas Rell was born on January 00 January 1925.",
                "Paper Lighthouse came out in 1971."], []),
        (EARLIER, ["Paper Lighthouse was released before Silent Orchard."], ["Paper Lighthouse"]),
        (EARLIER, ["Silent Orchard was released before Paper Lighthouse."], ["Silent Orchard"]),
        (EARLIER, ["Silent Orchard was released after Paper Lighthouse."], ["Paper Lighthouse"]),
        (EARLIER, ["Paper Lighthouse was released before Golden Tide."], []),
        (EARLIER, ["Silent Orchard was released first."], ["Silent Orchard"]),
        (EARLIER, ["Silent Orchard was released later."], []),
        (EARLIER, ["Golden Tide was released first."], []),
        (EARLIER, ["Paper Lighthouse came out in 1971.", "Silent Orchard came out in 1980.",
                   "Silent Orchard was released first."], ["Silent Orchard"]),
        (EARLIER, ["Paper Lighthouse was released first.", "Silent Orchard was released first."],
         ["Paper Lighthouse", "Silent Orchard"]),
        (EARLIER, ["The passages do not state the release year of Silent Orchard."], [ABSTENTION_ANSWER]),
        # A choice made among other things settles nothing here.
        (EARLIER, ["Paper Lighthouse was released before Golden Tide.", "Paper Lighthouse was released first."], []),
        (EARLIER, ["Paper Lighthouse was released before Silent Orchard.", "Paper Lighthouse was released first."],
         ["Paper Lighthouse"]),
        (OLDER, [DIRECTED, "Golden Tide was directed by Nora Quist.", "Tomas Rell is older than Nora Quist.",
                 "Paper Lighthouse has the director who is older."], []),
        (OLDER, [DIRECTED, "Tomas Rell is older than Nora Quist.", "Paper Lighthouse has the director who is older."],
         ["Paper Lighthouse"]),
        # By the people behind: only with the links.
        (OLDER, [DIRECTED, "Silent Orchard was directed by Nora Quist.",
                 "Nora Quist is older than Tomas Rell."], ["Silent Orchard"]),
        (OLDER, ["Nora Quist is older than Tomas Rell."], []),
        (OLDER, ["The director of Paper Lighthouse is older than the director of Silent Orchard."],
         ["Paper Lighthouse"]),
        (OLDER, ["Silent Orchard has the director who is older."], ["Silent Orchard"]),
        (OLDER, [DIRECTED, "Silent Orchard was directed by Tomas Rell.",
                 "Tomas Rell is older than Tomas Rell."], []),
        # Agreement.
        (SAME, [DIRECTED, "Silent Orchard was directed by Tomas Rell."], ["yes"]),
        (SAME, [DIRECTED, "Silent Orchard was directed by Nora Quist."], ["no"]),
        (SAME, [DIRECTED, "Silent Orchard was directed by Tom Holm.",
                "Tomas Rell is also known as Tom Holm."], ["yes"]),
        (SAME, ["Silent Orchard and Paper Lighthouse were directed by different people."], ["no"]),
        (SAME, ["Silent Orchard and Golden Tide were directed by the same person."], []),
        (SAME, [DIRECTED], []),
        # Spans.
        (SPAN, [DIRECTED, "Tomas Rell was born on 3 May 1930.",
                "Paper Lighthouse came out in 1971."], ["41"]),
        (SPAN, ["The number of years between the release year of Paper Lighthouse and the birth date of the "
                "director of Paper Lighthouse is 40."], ["40"]),
        (SPAN, ["The number of years between the release year of Golden Tide and the birth date of Nora Quist is 40."],
         []),
        (SPAN, ["1971 - 1930 = 41."], []),
    ],
)  # fmt: skip
def test_what_follows_from_the_claims(question, steps, answers):
    assert derive_answers(question, *steps) == answers


def test_denials_and_idle_steps_establish_nothing():
    assert (
        derive_answers(MOTHER, "It is not the case that the mother of the director of Paper Lighthouse is Petra Lind.")
        == []
    )
    assert derive_answers(MOTHER, "Let us read the passages.", "First, find the director of Paper Lighthouse.") == []


def test_names_that_are_one_have_one_name():
    premises = TracePremises(
        parse_trace_claims(Trace.of("A One is also known as B Two.", "B Two is also known as C Three."))
    )
    assert {premises.resolve_name(name) for name in ("A One", "B Two", "C Three")} == {"A One"}
    assert premises.resolve_name("D Four") == "D Four"


@pytest.mark.parametrize(
    ("options", "least", "expected"),
    [
        ([("a", "1971"), ("b", "1980")], True, "a"),
        ([("a", "1971"), ("b", "1980")], False, "b"),
        ([("a", "96"), ("b", "1234")], False, "b"),
        ([("a", "1971"), ("b", "1971"), ("c", "1980")], True, None),
        ([("a", "1971"), ("b", "1971"), ("c", "1980")], False, "c"),
        ([("a", "1971")], True, None),
        ([("a", "1971"), ("b", "January 00")], True, None),
        ([], True, None),
    ],
)
def test_the_winner_is_alone_at_the_top(options, least, expected):
    assert find_extreme_option(options, least=least) == expected
