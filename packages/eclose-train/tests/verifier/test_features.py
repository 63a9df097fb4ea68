"""Tests for the lexical features of verifiers."""

from __future__ import annotations

import inspect
import re

from hypothesis import given
from hypothesis import strategies as st

from eclose import Passage
from eclose_train.verifier.features import (
    SHORTCUT_FEATURES,
    alignment_features,
    closure_features,
    find_evidence_steps,
    index_evidence,
    support_features,
)
from eclose_train.verifier.words import collect_words, find_names, parse_text

QUESTION = "Where was the director of Moonstruck born?"
STEPS = ("Norman Jewison directed Moonstruck [2].", "Norman Jewison was born in Toronto.")
COMPARISON = "Which film came out first, Moonstruck or Rollerball?"
FACTS = ("Moonstruck came out in 1987.", "Rollerball came out in 1975.")
SAME = "Were the director of Moonstruck and the director of Rollerball born in the same city?"


def test_alignment_features_take_no_answer() -> None:
    assert list(inspect.signature(alignment_features).parameters) == ["question", "steps"]


def test_each_head_has_the_shortcut_features_and_enough_others() -> None:
    alignment, closure = alignment_features(QUESTION, STEPS), closure_features(QUESTION, STEPS, "Toronto")

    assert set(SHORTCUT_FEATURES) <= set(alignment) & set(closure)
    assert len(alignment) >= 25
    assert len(closure) >= 18


def test_synonyms_of_a_relation_count_as_the_same() -> None:
    features = alignment_features(QUESTION, ("The filmmaker behind Moonstruck came into the world in Toronto.",))

    assert features["question relations in the last step"] == 1
    assert features["question words in the last step"] == 1


def test_a_relation_easily_mistaken_for_the_one_asked_is_seen() -> None:
    dead = alignment_features(QUESTION, (STEPS[0], "Norman Jewison died in Malibu."))
    born = alignment_features(QUESTION, STEPS)

    assert (dead["relation mistaken in the last step"], born["relation mistaken in the last step"]) == (1, 0)
    assert dead["last question relation in the trace"] == 0


def test_the_direction_of_a_comparison_agrees_or_conflicts() -> None:
    directions = [
        alignment_features(COMPARISON, (f"Rollerball was released {word}.",))["direction of the last step"]
        for word in ("earlier", "later", "then")
    ]

    assert directions == [1, -1, 0]


def test_a_step_that_only_says_what_to_look_for_is_no_claim() -> None:
    goal = "We need to find the city where the director of Moonstruck was born."

    assert alignment_features(QUESTION, (goal, STEPS[0])) == alignment_features(QUESTION, STEPS[:1])
    # A trace of nothing else is read as it is.
    assert alignment_features(QUESTION, (goal,))["question words in the trace"] > 0.5


def test_the_answer_of_a_wrong_hop_is_not_the_newest() -> None:
    right, wrong = (closure_features(QUESTION, STEPS, answer) for answer in ("Toronto", "Norman Jewison"))

    assert right["answer words among the newest"] == 1
    assert wrong["answer words among the newest"] == 0
    assert right["answer complete in the last step"] == 1


def test_values_without_a_conclusion_decide_a_comparison() -> None:
    agreements = [
        closure_features(COMPARISON, FACTS, answer)["order of the values"]
        for answer in ("Rollerball", "Moonstruck", "Jaws")
    ]

    assert agreements == [1, -1, 0]
    assert closure_features(COMPARISON, FACTS[:1], "Moonstruck")["order of the values"] == 0


def test_values_are_followed_through_the_names_of_a_chain() -> None:
    question = "Which film has the director who was born last, Moonstruck or Rollerball?"
    steps = (
        "Norman Jewison directed Moonstruck; He was born on 21 July 1926.",
        "Rollerball was directed by John McTiernan.",
        "John McTiernan was born on January 8, 1951 [3].",
        "Thus, January 8, 1951 is later than 21 July 1926.",
    )

    assert closure_features(question, steps, "Rollerball")["order of the values"] == 1
    assert closure_features(question, steps, "Moonstruck")["order of the values"] == -1


def test_values_without_a_conclusion_decide_whether_two_are_the_same() -> None:
    steps = (
        "Norman Jewison directed Moonstruck.",
        "Norman Jewison was born in Toronto.",
        "John McTiernan directed Rollerball.",
        "John McTiernan was born in Albany.",
    )
    same = (*steps[:3], "John McTiernan was born in Toronto.")

    assert closure_features(SAME, steps, "no")["sameness of the values"] == 1
    assert closure_features(SAME, same, "no")["sameness of the values"] == -1
    assert closure_features(SAME, same, "Yes.")["sameness of the values"] == 1
    assert closure_features(QUESTION, STEPS, "yes")["sameness of the values"] == 0


def test_a_stated_sameness_agrees_or_conflicts_with_yes_and_no() -> None:
    conclusion = ("They were born in different cities.",)

    assert closure_features(SAME, conclusion, "no")["polarity of the last step"] == 1
    assert closure_features(SAME, conclusion, "yes")["polarity of the last step"] == -1


def test_a_number_answered_may_be_the_difference_of_two_values() -> None:
    features = [closure_features("How many years apart?", FACTS, answer) for answer in ("12", "13", "twelve")]

    assert [values["difference of the values"] for values in features] == [1, 0, 0]


def test_the_type_of_an_answer_is_compared_with_the_question() -> None:
    fits = [
        closure_features(question, STEPS, answer)["type of the answer"]
        for question, answer in (
            ("When was he born?", "1926"),
            ("When was he born?", "Toronto"),
            ("How many films did he make?", "24"),
            (SAME, "Toronto"),
            (COMPARISON, "Moonstruck"),
        )
    ]

    assert fits == [1, -1, 1, -1, 0]


def test_a_step_is_compared_with_its_best_sentence_and_title() -> None:
    evidence = (
        Passage("1", "Moonstruck", "Norman Jewison made it. It came out in 1987."),
        Passage("2", "Norman Jewison", "He was born in Toronto. He studied in London in 1950."),
    )
    index = index_evidence(evidence)
    supported, crossed = (
        support_features(index, f"Norman Jewison was born in {city}.") for city in ("Toronto", "Ottawa")
    )

    assert supported["all names and numbers in the best sentence"] == 1
    assert crossed["all names and numbers in the best sentence"] == 0
    assert crossed["step names in the evidence"] == 2 / 3
    # In the passage, but of another sentence.
    assert support_features(index, "He was born in 1950.")["step relations in the best sentence"] == 0


def test_a_step_without_evidence_words_has_features() -> None:
    features = support_features(index_evidence(()), "Norman Jewison was born in Toronto.")

    assert features["step names in the best sentence"] == 0


def test_conclusions_from_earlier_steps_need_no_evidence() -> None:
    steps = (
        "Moonstruck came out in 1987.",
        "Rollerball came out in 1975.",
        "Thus 1987 - 1975 = 12.",
        "So Moonstruck came out 12 years after Rollerball.",
        "Jaws came out in the same year.",
    )

    assert find_evidence_steps("How many years apart?", steps) == [steps[0], steps[1], steps[4]]
    assert find_evidence_steps(COMPARISON, ("Moonstruck or Rollerball?",)) == ["Moonstruck or Rollerball?"]


def test_names_leave_out_openers_references_and_months() -> None:
    assert find_names("According to Passage 3, St. Louis lies on the Mississippi. He left in May.") == [
        "St. Louis",
        "Mississippi",
    ]
    assert parse_text("Passage 3 says that [2] Ada moved on 3 May 1926.").names == {"ada"}
    assert parse_text("Passage 3 says that 12,500 live there [2, 4].").numbers == ("12500",)


def test_values_of_another_relation_do_not_decide_a_comparison() -> None:
    question = "Who is younger, Edmund Rell or Agnes Joyner?"
    steps = (
        "Edmund Rell was born in 1936.",
        "Agnes Joyner was born in 1937.",
        "Agnes Joyner died in 1988.",
        "Edmund Rell died in 1989.",
    )

    assert closure_features(question, steps, "Agnes Joyner")["order of the values"] == 1
    assert closure_features(question, steps, "Edmund Rell")["order of the values"] == -1


def test_a_link_stated_after_the_value_is_followed() -> None:
    question = "Which novel has the author who was born first, Hollow Vineyard or Quiet Violin?"
    steps = (
        "Casimir Reed was born in 1923.",
        "Rosa Nagy was born in 1924.",
        "Rosa Nagy wrote Hollow Vineyard.",
        "Casimir Reed is the author of Quiet Violin.",
    )

    assert closure_features(question, steps, "Quiet Violin")["order of the values"] == 1


def test_a_value_shared_by_both_sides_is_the_same() -> None:
    question = "Are the company Marsh Industries and the company Novak Films based in the same city?"
    steps = ("The head office of Marsh Industries is in Oslo.", "Novak Films is based in Oslo.", "So Oslo is its seat.")

    assert closure_features(question, steps, "yes")["sameness of the values"] == 1
    assert (
        closure_features(question, (*steps[:1], "Novak Films is based in Lund."), "yes")["sameness of the values"] == -1
    )


def test_a_grandparent_is_a_parent_of_a_parent() -> None:
    question = "Who is the paternal grandmother of Ada Byron?"
    right = ("The father of Ada Byron is George Byron.", "The mother of George Byron is Catherine Gordon.")
    wrong = (right[0], "The father of George Byron is John Byron.")

    assert alignment_features(question, right)["question relations in the trace"] == 1
    assert alignment_features(question, wrong)["question relations in the trace"] == 0.5


# The expression that defines a word, over the whole text; ``collect_words`` reads most pieces without it.
WORD = re.compile(r"[^\W\d_]+(?:['’][a-z]+)?|\d+(?:\.\d+)?")


@given(st.text(alphabet=st.sampled_from("abzéßİǅª²۳ \t\n.,'’-_[]()0129\u0301\u00a0"), max_size=60))
def test_distinct_words_are_those_of_the_expression(text: str) -> None:
    assert collect_words(text) == set(WORD.findall(text.lower().replace(",", "")))
