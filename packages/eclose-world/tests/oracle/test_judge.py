"""The rules of appendix A.3.2, one by one, on small cases written by hand."""

import pytest

from eclose.files.jsonl import check_core_rules
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, LocalFailure
from eclose.values.response import Response, Trace
from eclose.values.verdict import FailureClass
from eclose_world.language.claims import ClaimlessStep
from eclose_world.oracle.answer_equality import answer_matches_value, is_abstention, is_correct_answer, is_same_answer
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.oracle.judge import ORACLE_JUDGE_NAME, judge_by_oracle
from eclose_world.oracle.soundness import StepClaimChecker, judge_step_soundness

TEXTS = {
    "Paper Lighthouse (film)": "Paper Lighthouse is a 1971 drama film directed by Tomas Rell. "
    "Ines Varga appeared in it.",
    "Tomas Rell (film director)": "Tomas Rell (born 3 May 1930 in Halmere) is a film director. "
    "The mother of Tomas Rell was Petra Lind.",
    "Tomas Rell (footballer)": "Tomas Rell (born 9 June 1955 in Brenholt) is a footballer. "
    "The mother of Rell was Hanna Weir.",
    "Silent Orchard": "Silent Orchard is a 1980 comedy film directed by Nora Marsh.",
    "Nora Quist": "Nora Quist (2 March 1925 to 4 July 1990) was a film director from Brenholt. "
    "She is also known as Nora Marsh.",
    "Halmere": "Halmere is a small city in Karskland. Halmere has 52,300 inhabitants. "
    "In 1950 the population of Halmere was 31,000.",
    "Brenholt": "Brenholt is an old city in Karskland. Brenholt has 8,100 inhabitants.",
    "Paper Lighthouse (novel)": "Paper Lighthouse is a 1950 novel by Vera Dahl.",
}
EVIDENCE = tuple(Passage(str(index), title, text) for index, (title, text) in enumerate(TEXTS.items()))
MOTHER = "Who is the mother of the director of Paper Lighthouse?"
EARLIER = "Which film was released first, Paper Lighthouse or Silent Orchard?"
DIRECTED = "Paper Lighthouse was directed by Tomas Rell."
BORE_HIM = "The mother of Tomas Rell was Petra Lind."
SO = "So the mother of the director of Paper Lighthouse is Petra Lind."

L2, L3, L4 = list(LocalFailure)[1:4]


def judged(question, *steps, answer="Petra Lind", reference="Petra Lind", aliases=(), evidence=EVIDENCE):
    instance = Instance("q", question, evidence, reference, aliases)
    judgment = judge_by_oracle(instance, Response("r", "q", Trace.of(*steps), answer))
    check_core_rules(judgment)
    return judgment


def verdict(question, *steps, **rest):
    verdict_found = judged(question, *steps, **rest).verdict
    return (
        verdict_found.locally_sound,
        verdict_found.aligned,
        verdict_found.closed,
        verdict_found.complete,
        verdict_found.correct,
    )


def codes(*steps, evidence=EVIDENCE):
    """S for a sound step, - for one that asserts nothing, ? for an open one, or the code."""
    judgments, _, _ = judge_step_soundness(evidence, Trace.of(*steps))
    return [
        "-" if step.substantive is False else "S" if step.sound else "?" if step.sound is None else step.failure.value
        for step in judgments
    ]


def test_a_reliable_response_is_reliable():
    judgment = judged(MOTHER, DIRECTED, BORE_HIM, SO)
    assert judgment.verdict.reliable
    assert judgment.verdict.correct
    assert (judgment.judge, judgment.response_id, judgment.unjudged) == (ORACLE_JUDGE_NAME, "r", {})
    assert [step.support and step.support.passage_index for step in judgment.steps] == [0, 1, None]
    assert judgment.steps[0].support.quote == EVIDENCE[0].text


# Pass A: substantive status.


@pytest.mark.parametrize(
    "step",
    [
        "First, find the director of Paper Lighthouse.",
        "We need to identify the mother of Tomas Rell.",
        "The question asks for the mother of the director of Paper Lighthouse.",
        "The question is about Paper Lighthouse.",
        "Let us read the passages.",
        "Step by step.",
    ],
)
def test_plans_restatements_and_transitions_are_not_substantive(step):
    assert codes(step) == ["-"]
    assert verdict(MOTHER, step, DIRECTED, BORE_HIM, SO) == (True,) * 5


@pytest.mark.parametrize(
    "step",
    [
        DIRECTED,
        SO,
        "1971 - 1930 = 41.",
        "The passages do not state the spouse of Tomas Rell.",
        "Nora Quist is also known as Nora Marsh.",
        "Let us read the passages; Paper Lighthouse was directed by Tomas Rell.",
    ],
)
def test_claims_inferences_computations_coverage_and_links_are_substantive(step):
    assert codes(step) == ["S"]


def test_a_plan_that_also_claims_is_judged_by_its_claim():
    assert codes("Let us read the passages; Paper Lighthouse was directed by Nora Quist.") == ["L1"]


# Pass A: the codes.


@pytest.mark.parametrize(
    "step",
    [
        "Paper Lighthouse was directed by Nora Quist.",
        "Tomas Rell was married to Ines Varga.",
        "Halmere has 52,301 inhabitants.",
        "Tomas Rell was born on 4 May 1930.",
        "Golden Tide was released in 1971.",
        "It is not the case that Tomas Rell was married to Ines Varga.",
    ],
)
def test_l1_content_no_passage_states(step):
    assert codes(step) == ["L1"]


@pytest.mark.parametrize(
    "step",
    [
        "So the mother of the director of Paper Lighthouse is Hanna Weir.",
        "The birthplace of the director of Silent Orchard is Halmere.",
        "Tomas Rell is also known as Nora Quist.",
        "Tomas Rell is the person who directed Paper Lighthouse and wrote Salt Letters.",
        "Tomas Rell is older than Vera Dahl.",
        "Tomas Rell and Vera Dahl were born in the same city.",
        "The number of years between the birth date of Vera Dahl and the release year of Silent Orchard is 3.",
        "Silent Orchard was released first.",
    ],
)
def test_l2_inferences_and_links_that_do_not_follow(step):
    assert codes(step) == ["L2"]


@pytest.mark.parametrize(
    "step",
    [
        "1980 is earlier than 1971.",
        "8,100 is more than 52,300.",
        "1971 is later than 1971.",
        "1980 - 1971 = 8.",
        "Silent Orchard was released before Paper Lighthouse.",
        "Nora Quist and the director of Paper Lighthouse were born in the same city.",
        "Halmere and Brenholt lie in different countries.",
        "The number of years between the release year of Paper Lighthouse and the release year of Silent Orchard is 8.",
        "Halmere is smaller than Brenholt.",
    ],
)
def test_l3_wrong_computations_comparisons_and_orders(step):
    assert codes(step) == ["L3"]


def test_l3_a_wrong_choice_among_what_was_weighed():
    facts = ("Paper Lighthouse came out in 1971.", "Silent Orchard came out in 1980.")
    assert codes(*facts, "Silent Orchard was released first.") == ["S", "S", "L3"]
    assert codes(*facts, "Paper Lighthouse was released first.") == ["S", "S", "S"]
    compared = "Paper Lighthouse was released before Silent Orchard."
    assert codes(compared, "Paper Lighthouse was released first.") == ["S", "S"]
    assert codes(compared, "Silent Orchard was released first.") == ["S", "L3"]


def test_a_choice_nobody_weighed_is_among_what_the_question_names():
    assert [step.failure for step in judged(EARLIER, "Silent Orchard was released first.").steps] == [L3]
    assert [step.sound for step in judged(EARLIER, "Paper Lighthouse was released first.").steps] == [True]
    assert [step.failure for step in judged(MOTHER, "Paper Lighthouse was released first.").steps] == [L2]


def test_l3_a_wrong_choice_by_the_people_behind():
    facts = (DIRECTED, "Silent Orchard was directed by Nora Quist.", "Nora Quist is older than Tomas Rell.")
    assert codes(*facts, "Silent Orchard has the director who is older.") == ["S"] * 4
    assert codes(*facts, "Paper Lighthouse has the director who is older.") == ["S", "S", "S", "L3"]
    facts = facts[:2]
    assert codes(*facts, "Silent Orchard has the director who is older.") == ["S"] * 3
    assert codes(*facts, "Paper Lighthouse has the director who is older.") == ["S", "S", "L3"]


@pytest.mark.parametrize(
    "step",
    [
        "The passages do not state the mother of Tomas Rell.",
        "None of the passages gives the director of Paper Lighthouse.",
        "There is no information about the mother of the director of Paper Lighthouse.",
    ],
)
def test_l4_denying_what_the_passages_cover(step):
    assert codes(step) == ["L4"]


def test_coverage_truly_missing_is_sound():
    assert codes("The passages do not state the spouse of the director of Paper Lighthouse.") == ["S"]


def test_l5_denying_a_fact_the_passages_state():
    assert codes("It is not the case that Paper Lighthouse was directed by Tomas Rell.") == ["L5"]
    assert codes("It is not the case that Silent Orchard was directed by Nora Quist.") == ["L5"]


def test_denying_what_the_passages_exclude_is_sound():
    assert codes("It is not the case that Paper Lighthouse was directed by Nora Quist.") == ["S"]
    # Another actor may have appeared too: the passages exclude nobody.
    assert codes("It is not the case that Nora Quist appeared in Paper Lighthouse.") == ["L1"]


# Pass A: what counts as support.


def test_hedged_statements_are_judged_by_what_they_assert():
    assert codes("It appears that Paper Lighthouse was directed by Tomas Rell.") == ["S"]
    assert codes("It appears that Paper Lighthouse was directed by Nora Quist.") == ["L1"]


@pytest.mark.parametrize("citation", ["[0]", "[6]", "[99]", "[3] [4]"])
def test_citations_do_not_matter(citation):
    assert codes(f"Paper Lighthouse was directed by Tomas Rell {citation}.") == ["S"]
    assert codes(f"Paper Lighthouse was directed by Nora Quist {citation}.") == ["L1"]
    assert codes("According to passage 6, Paper Lighthouse was directed by Tomas Rell.") == ["S"]


def test_the_right_relation_of_a_namesake_is_an_invalid_link():
    for step in ("Tomas Rell was born in Brenholt.", "The mother of Tomas Rell was Hanna Weir."):
        assert codes(DIRECTED, step) == ["S", "L2"]
        # Without the director, any bearer of the name may be meant.
        assert codes(step) == ["S"]


def test_a_title_used_twice_is_told_apart_by_the_relation():
    assert codes("Vera Dahl wrote Paper Lighthouse.", "Paper Lighthouse first appeared in 1950.") == ["S", "S"]
    assert codes("Paper Lighthouse was directed by Vera Dahl.", "Paper Lighthouse came out in 1950.") == ["L1", "L1"]


def test_an_older_value_is_not_the_present_one():
    assert codes("The population of Halmere is 31,000.") == ["L1"]
    assert codes("The population of Halmere is 52,300.") == ["S"]


def test_another_name_of_a_person_is_the_person():
    assert codes("Silent Orchard was directed by Nora Quist.", "Nora Marsh was born in Brenholt.") == ["S", "S"]


def test_following_from_an_unsound_step_is_not_enough():
    # The second step follows from the first, which rests on nothing.
    wrong = "Paper Lighthouse was directed by Nora Quist."
    assert codes(wrong, "So the birthplace of the director of Paper Lighthouse is Brenholt.") == ["L1", "L2"]
    assert codes(wrong, "Nora Quist was born in Brenholt.") == ["L1", "S"]


def test_any_unwarranted_claim_makes_the_whole_step_unsound():
    right, wrong = DIRECTED.removesuffix("."), "Halmere has 9 inhabitants"
    assert codes(f"{right}; {wrong}.") == codes(f"{wrong}; {right}.") == ["L1"]
    assert codes(f"{right}; Halmere has 52,300 inhabitants.") == ["S"]


def test_the_first_broken_claim_of_a_step_names_the_code():
    assert codes("1980 is earlier than 1971; Halmere has 9 inhabitants.") == ["L3"]


# Pass B: alignment.


def test_alignment_does_not_depend_on_soundness():
    steps = ("Paper Lighthouse was directed by Vera Dahl.", "The mother of Vera Dahl was Hanna Weir.")
    assert verdict(MOTHER, *steps, answer="Hanna Weir") == (False, True, True, False, False)


def test_stopping_short_stays_aligned():
    assert verdict(MOTHER, DIRECTED) == (True, True, False, False, True)
    assert judged(MOTHER, DIRECTED).verdict.failure_class is FailureClass.INCOMPLETE_REASONING


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        (MOTHER, [DIRECTED, "Tomas Rell was born in Halmere."]),
        (MOTHER, ["Silent Orchard was directed by Nora Quist."]),
        (MOTHER, [DIRECTED, "Paper Lighthouse was released before Silent Orchard."]),
        (EARLIER, ["Paper Lighthouse was released before Silent Orchard.", "Silent Orchard was released later."]),
    ],
)
def test_another_relation_entity_kind_of_answer_or_order_is_misaligned(question, steps):
    judgment = judged(question, *steps)
    assert judgment.locally_sound is True
    assert judgment.aligned is False
    assert judgment.verdict.failure_class is FailureClass.PATH_DEVIATION


def test_an_abstention_about_the_target_is_aligned():
    step = "The passages do not state the mother of the director of Paper Lighthouse."
    assert judged(MOTHER, step, answer="not determined").aligned is True


# Pass C: closure.


def test_facts_that_only_the_evidence_has_do_not_close():
    assert judged(MOTHER, DIRECTED).closed is False
    assert judged(MOTHER, BORE_HIM, "Silent Orchard was directed by Nora Marsh.", DIRECTED).closed is True
    link_missing = (BORE_HIM, "Paper Lighthouse was directed by Vera Dahl.")
    assert judged(MOTHER, *link_missing).aligned is True
    assert judged(MOTHER, *link_missing).closed is False
    assert judged(MOTHER, DIRECTED, BORE_HIM).closed is True


def test_another_name_counts_only_if_the_trace_says_so():
    question = "When was the director of Silent Orchard born?"
    steps = ("Silent Orchard was directed by Nora Marsh.", "Nora Quist was born on 2 March 1925.")
    link = "Nora Quist is also known as Nora Marsh."
    answers = {"answer": "2 March 1925", "reference": "March 2, 1925"}
    assert verdict(question, *steps[::-1], **answers) == (True, True, False, False, True)
    assert verdict(question, link, *steps[::-1], **answers) == (True,) * 5
    assert verdict(question, steps[0], link, steps[1], **answers) == (True,) * 5
    assert verdict(question, *steps, **answers) == (True, True, False, False, True)


def test_an_answer_by_another_name_closes_if_the_trace_links_the_names():
    question, step = "Who directed Silent Orchard?", "Silent Orchard was directed by Nora Marsh."
    link = "Nora Quist is also known as Nora Marsh."
    for answer in ("Nora Marsh", "Nora Quist", "Quist, Nora"):
        answers = {"answer": answer, "reference": "Nora Marsh", "aliases": ("Nora Quist",)}
        assert verdict(question, step, link, **answers) == (True,) * 5
    assert verdict(question, step, answer="Nora Quist", reference="Nora Marsh", aliases=("Nora Quist",)) == (
        True, True, False, True, True,
    )  # fmt: skip


def test_an_off_target_trace_can_close():
    steps = (DIRECTED, "Tomas Rell was born in Halmere.")
    assert verdict(MOTHER, *steps, answer="Halmere") == (True, False, True, False, False)
    # The right answer after that is not what the trace establishes.
    assert verdict(MOTHER, *steps, answer="Petra Lind") == (True, False, False, False, True)


@pytest.mark.parametrize(
    ("last", "answer", "closed"),
    [
        ("Paper Lighthouse was released first.", "Paper Lighthouse", True),
        ("Paper Lighthouse was released first.", "Silent Orchard", False),
        ("Paper Lighthouse and Silent Orchard were directed by different people.", "no", True),
        ("Paper Lighthouse and Silent Orchard were directed by the same person.", "yes", True),
        ("The years that separate the release year of Golden Tide from the birth date of Nora Quist are 9.", "9", True),
        ("The passages do not state the spouse of Tomas Rell.", "unknown", True),
        ("Paper Lighthouse was released before Silent Orchard.", "Paper Lighthouse", False),
    ],
)  # fmt: skip
def test_what_an_off_target_trace_establishes_is_its_own_conclusion(last, answer, closed):
    judgment = judged(MOTHER, DIRECTED, last, answer=answer)
    assert (judgment.aligned, judgment.closed) == (False, closed)


def test_an_abstention_closes_only_if_the_trace_supports_it():
    says_so = "The passages do not state the mother of Tomas Rell."
    assert judged(MOTHER, DIRECTED, says_so, answer="not determined").closed is True
    assert judged(MOTHER, DIRECTED, answer="not determined").closed is False
    assert judged(MOTHER, DIRECTED, says_so).closed is False


def test_a_false_claim_of_insufficient_evidence_is_l4_and_closed():
    judgment = judged(MOTHER, DIRECTED, "There is no information about the mother of Tomas Rell.", answer="Unknown.")
    assert [step.failure for step in judgment.steps] == [None, L4]
    assert verdict(
        MOTHER, DIRECTED, "There is no information about the mother of Tomas Rell.", answer="unknown"
    ) == (False, True, True, False, False)  # fmt: skip


def test_two_values_close_on_neither():
    steps = (DIRECTED, BORE_HIM, "The mother of Tomas Rell was Hanna Weir.")
    assert judged(MOTHER, *steps).closed is False
    assert judged(MOTHER, *steps).complete is False
    assert judged(MOTHER, *steps, answer="Hanna Weir").closed is False


def test_not_contradicting_is_not_establishing():
    assert judged(MOTHER, "Petra Lind was born in Halmere.", DIRECTED).closed is False


def test_the_premises_are_not_judged_again():
    wrong = ("Paper Lighthouse was directed by Vera Dahl.", "The mother of Vera Dahl was Petra Lind.")
    assert verdict(MOTHER, *wrong) == (False, True, True, True, True)


def test_an_unresolved_alternative_is_no_answer():
    assert verdict(MOTHER, DIRECTED, BORE_HIM, answer="Petra Lind or Hanna Weir") == (True, True, False, True, False)


# Pass D: correctness and completeness.


def test_another_answer_than_the_trace_establishes_is_decoupled():
    judgment = judged(MOTHER, DIRECTED, BORE_HIM, SO, answer="Hanna Weir")
    assert judgment.verdict.failure_class is FailureClass.ANSWER_DECOUPLING
    assert (judgment.closed, judgment.complete, judgment.correct) == (False, True, False)


def test_completeness_needs_every_premise_in_the_trace():
    assert judged(MOTHER, BORE_HIM).complete is False
    assert judged(MOTHER, DIRECTED, BORE_HIM).complete is True
    # K looks at the reference, whatever was submitted.
    assert judged(MOTHER, DIRECTED, BORE_HIM, answer="nobody").complete is True
    assert judged(MOTHER, DIRECTED, BORE_HIM, reference="Ann Grey", aliases=("Petra Lind",)).complete is True


@pytest.mark.parametrize(
    ("answer", "accepted", "same"),
    [
        ("3 May 1930", "May 3, 1930", True),
        ("3 May 1930.", "3 May 1930", True),
        ("4 May 1930", "May 3, 1930", False),
        ("1930", "3 May 1930", False),
        ("52,300", "52300", True),
        ("52,301", "52300", False),
        ("95 minutes", "1 hour and 35 minutes", True),
        ("Petra Lind", "petra lind", True),
        ("Lind, Petra", "Petra Lind", True),
        ("Petra, Lind", "Petra Lind", False),
        ("Lind", "Petra Lind", False),
        ("The Silent Orchard", "Silent Orchard", True),
        ("Silent Orchards", "Silent Orchard", False),
        ("Petra Lind or Hanna Weir", "Petra Lind", False),
        ("Yes.", "yes", True),
        ("yes", "no", False),
        ("!", "?", False),
        ("not determined", "Unknown", True),
        ("not determined", "Petra Lind", False),
        ("Petra Lind", "cannot be determined", False),
    ],
)
def test_equal_answers_are_equal_in_meaning_not_in_letters(answer, accepted, same):
    assert is_same_answer(answer, accepted) is same
    assert is_same_answer(accepted, answer) is same


@pytest.mark.parametrize(
    ("answer", "value", "label"),
    [
        ("The answer is Petra Lind.", "Petra Lind", True),
        ("It was Lind, Petra", "Petra Lind", True),
        ("41 years", "41", True),
        ("8,100 inhabitants", "8100", True),
        ("Yes, they were.", "yes", True),
        ("No, they were not.", "yes", False),
        ("perhaps", "yes", False),
        # The right words among others that could change them: not for a machine to say.
        ("Petra Lind, probably", "Petra Lind", None),
        ("not Petra Lind", "Petra Lind", None),
        ("Petra Lind or Hanna Weir", "Petra Lind", False),
        ("unknown", "Petra Lind", False),
        ("Hanna Weir", "Petra Lind", False),
    ],
)
def test_the_words_around_an_answer(answer, value, label):
    assert answer_matches_value(answer, value) is label


def test_an_answer_that_cannot_be_read_leaves_closure_and_correctness_open():
    judgment = judged(MOTHER, DIRECTED, BORE_HIM, answer="not Petra Lind")
    assert (judgment.closed, judgment.complete, judgment.correct) == (None, True, None)
    assert reasons(judgment) == dict.fromkeys(("C", "Acc"), "cannot read the answer")
    # Where nothing is established, no reading of the answer could close.
    assert judged(MOTHER, DIRECTED, answer="not Petra Lind").closed is False
    assert is_correct_answer("Nora Quist, probably", ("Petra Lind", "Nora Quist")) is None
    assert is_correct_answer("Nora Quist", ("Nora", "Nora Quist")) is True


def test_aliases_are_correct():
    assert is_correct_answer("Nora Marsh", ("Nora Quist", "Nora Marsh"))
    assert not is_correct_answer("Tomas Rell", ("Nora Quist", "Nora Marsh"))
    assert not is_correct_answer("Tomas Rell", ())


@pytest.mark.parametrize("answer", ["not determined", "Unknown.", "insufficient evidence", " Cannot be determined "])
def test_an_abstention_is_never_correct(answer):
    assert is_abstention(answer)
    assert not is_correct_answer(answer, ("Petra Lind", answer))
    assert judged(MOTHER, DIRECTED, answer=answer).correct is False


# What cannot be judged.


def reasons(judgment):
    return {criterion.value: reason for criterion, reason in judgment.unjudged.items()}


def test_an_unreadable_step_leaves_its_labels_open_with_the_reason():
    judgment = judged(MOTHER, DIRECTED, "Everybody loved her.", BORE_HIM)
    assert [step.substantive for step in judgment.steps] == [True, None, True]
    assert reasons(judgment) == dict.fromkeys("LACK", "cannot read step 2")
    assert (judgment.locally_sound, judgment.aligned, judgment.closed, judgment.complete) == (None,) * 4
    assert judgment.correct is True


def test_a_last_step_that_answers_the_question_shows_alignment_whatever_is_unread():
    conclusion = "So the mother of the director of Paper Lighthouse is Ana Ruiz."
    judgment = judged(MOTHER, "Everybody loved her.", conclusion)
    assert judgment.aligned is True
    assert reasons(judgment).keys() >= {"C", "K"}
    assert judged(MOTHER, conclusion, "Everybody loved her.").aligned is None
    assert judged(MOTHER, "Everybody loved her.", BORE_HIM).aligned is None


def test_an_unsound_step_decides_soundness_even_so():
    judgment = judged(MOTHER, "Everybody loved her.", "Paper Lighthouse was directed by Nora Quist.")
    assert judgment.locally_sound is False
    assert reasons(judgment) == dict.fromkeys("ACK", "cannot read step 1")


def test_an_unreadable_question_leaves_alignment_closure_and_completeness_open():
    judgment = judged("What is love?", DIRECTED, BORE_HIM)
    assert judgment.locally_sound is True
    assert judgment.correct is True
    assert reasons(judgment) == dict.fromkeys("ACK", "cannot read the question")


def test_without_a_reference_there_is_no_completeness_and_no_correctness():
    judgment = judged(MOTHER, DIRECTED, BORE_HIM, reference=None)
    assert judgment.verdict.reliable is True
    assert reasons(judgment) == dict.fromkeys(("K", "Acc"), "there is no reference answer")


def test_without_an_answer_there_is_no_closure_and_no_correctness():
    judgment = judged(MOTHER, DIRECTED, BORE_HIM, answer=None)
    assert (judgment.aligned, judgment.complete) == (True, True)
    assert reasons(judgment) == dict.fromkeys(("C", "Acc"), "no answer was submitted")
    neither = judged(MOTHER, "Everybody loved her.", answer=None, reference=None)
    assert reasons(neither)["A"] == "cannot read step 1"
    assert reasons(neither)["C"] == "no answer was submitted"


def test_a_trace_without_a_goal_has_no_alignment():
    judgment = judged(MOTHER, "Let us read the passages.")
    assert reasons(judgment) == {"A": "no claim shows what the trace pursues"}
    assert (judgment.locally_sound, judgment.closed, judgment.complete) == (True, False, False)


def test_an_answer_without_a_trace_is_judged_as_an_answer_only():
    judgment = judged(MOTHER)
    assert (judgment.closed, judgment.complete, judgment.correct) == (None, None, True)
    assert reasons(judgment) == dict.fromkeys("ACK", "there is no trace")


STRANGE = (
    *EVIDENCE,
    Passage("8", "Old Gate", "Old Gate is haunted. Vera Dahl once danced there with Petra Lind."),
)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        # A sentence nobody could read speaks of Vera Dahl and Petra Lind, and of Old Gate by its title.
        ("Vera Dahl was born in Halmere.", "?"),
        ("Tomas Rell was married to Petra Lind.", "?"),
        ("Vera Dahl is also known as Ann Grey.", "?"),
        ("The passages do not state the spouse of Vera Dahl.", "?"),
        ("It is not the case that Vera Dahl was married to Ann Grey.", "?"),
        ("Vera Dahl is older than Tomas Rell.", "?"),
        ("Nora Quist is older than Petra Lind.", "?"),
        ("Vera Dahl was born first.", "?"),
        ("Old Gate was founded in 1950.", "?"),
        # Of nobody else: then the claim is unsupported after all.
        ("Ines Varga was born in Brenholt.", "L1"),
        ("Ines Varga is also known as Ann Grey.", "L2"),
        ("The passages do not state the spouse of Ines Varga.", "S"),
        # And what another passage states is supported whatever that sentence says.
        ("Vera Dahl wrote Paper Lighthouse.", "S"),
        ("The passages do not state the mother of Tomas Rell.", "L4"),
    ],
)
def test_a_sentence_that_cannot_be_read_may_support_what_it_speaks_of(step, code):
    assert codes(step, evidence=STRANGE) == [code]


def test_an_open_step_leaves_soundness_open_with_the_reason():
    judgment = judged(MOTHER, DIRECTED, "Vera Dahl was born in Halmere.", BORE_HIM, evidence=STRANGE)
    assert judgment.locally_sound is None
    assert reasons(judgment) == {"L": "cannot read a sentence of the passages that may decide step 2"}
    worse = judged(MOTHER, "Vera Dahl was born in Halmere.", "Halmere has 9 inhabitants.", DIRECTED, evidence=STRANGE)
    assert worse.locally_sound is False
    assert Criterion.LOCAL_SOUNDNESS not in worse.unjudged


def test_a_broken_claim_outweighs_an_open_one_in_the_same_step():
    assert codes("Vera Dahl was born in Halmere; Halmere has 9 inhabitants.", evidence=STRANGE) == ["L1"]


def test_no_passages_support_nothing():
    assert codes(DIRECTED, "1971 is earlier than 1980.", evidence=()) == ["L1", "S"]


def test_the_name_of_nothing_is_not_judged_by_id():
    # The same words under other ids and in another order give the same codes.
    turned = tuple(Passage(f"x{9 - i}", p.title, p.text) for i, p in enumerate(EVIDENCE))[::-1]
    steps = (DIRECTED, "Tomas Rell was born in Brenholt.", "Halmere has 9 inhabitants.", SO)
    assert codes(*steps, evidence=turned) == codes(*steps) == ["S", "L2", "L1", "S"]


def test_a_step_that_asserts_nothing_cannot_be_wrong():
    assert StepClaimChecker(parse_evidence_facts(EVIDENCE)).check(ClaimlessStep.PLAN).sound is True
