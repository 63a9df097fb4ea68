"""A solution states every link; a submitted answer may be put in several ways that all mean the same."""

from dataclasses import replace
from random import Random

import pytest

from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose_world.language import relations as rel
from eclose_world.language.claims import (
    ClaimlessStep,
    ComparisonClaim,
    FactClaim,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import LookupQuestion, parse_question
from eclose_world.language.steps import parse_trace_claims
from eclose_world.make.solve import (
    SolutionMove,
    solve_question,
    vary_answer_wording,
    verbalize_answer,
    write_moves_as_steps,
    write_solution_trace,
)
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.evidence import EvidenceFacts

TEXTS = (
    ("Paper Lighthouse", "Paper Lighthouse is a 1971 drama film directed by Tomas Rell."),
    ("Tomas Rell", "Tomas Rell (3 May 1930 to 4 July 1990) was a film director from Halmere."),
    ("Silent Orchard", "Silent Orchard is a 1980 comedy film directed by Nora Marsh."),
    ("Nora Quist", "Nora Quist (born 2 March 1925 in Halmere) is a film director. She is also known as Nora Marsh."),
    ("Halmere", "Halmere is a small city in Karskland. Halmere has 52,300 inhabitants."),
)
EVIDENCE = EvidenceFacts(Passage(str(index), title, text) for index, (title, text) in enumerate(TEXTS))


def solved(question):
    return solve_question(parse_question(question), EVIDENCE)


def test_a_chain_states_every_fact_and_then_the_conclusion():
    solution = solved("What is the population of the birthplace of the director of Paper Lighthouse?")
    assert [(move.claim.value, move.passages, move.premises) for move in solution.moves] == [
        ("Tomas Rell", (0,), ()),
        ("Halmere", (1,), ()),
        ("52300", (4,), ()),
        ("52300", (), (0, 1, 2)),
    ]
    assert (solution.answer, solution.support) == ("52300", {0, 1, 4})


def test_one_fact_needs_no_conclusion():
    solution = solved("Who directed Paper Lighthouse?")
    assert [move.claim for move in solution.moves] == [
        FactClaim(RelationPhrase("Paper Lighthouse", (rel.DIRECTOR,)), "Tomas Rell")
    ]


def test_another_name_is_a_link_of_its_own():
    solution = solved("When was the director of Silent Orchard born?")
    assert FactClaim(RelationPhrase("Nora Quist", (rel.ALIAS,)), "Nora Marsh") in [
        move.claim for move in solution.moves
    ]


def test_a_choice_orders_compares_and_chooses():
    solution = solved("Which film was released first, Paper Lighthouse or Silent Orchard?")
    assert [type(move.claim) for move in solution.moves] == [
        FactClaim,
        FactClaim,
        ValueOrderClaim,
        ComparisonClaim,
        SuperlativeClaim,
    ]
    assert solution.answer == "Paper Lighthouse"


def test_a_choice_by_the_people_behind_compares_the_people():
    solution = solved("Which film's director is older, Paper Lighthouse or Silent Orchard?")
    compared = next(move.claim for move in solution.moves if isinstance(move.claim, ComparisonClaim))
    assert (compared.first.base, compared.second.base) == ("Tomas Rell", "Nora Quist")
    assert solution.answer == "Silent Orchard"


def test_a_choice_between_works_of_one_person_compares_the_works():
    texts = (*TEXTS[:2], ("Golden Tide", "Golden Tide is a drama film by Tomas Rell."))
    evidence = EvidenceFacts(Passage(str(index), title, text) for index, (title, text) in enumerate(texts))
    assert (
        solve_question(parse_question("Which film's director is older, Paper Lighthouse or Golden Tide?"), evidence)
        is None
    )


def test_agreement_and_spans_conclude_in_their_own_words():
    solution = solved("Were Tomas Rell and Nora Quist born in the same city?")
    assert solution.moves[-1].claim == SameValueClaim(
        RelationPhrase("Tomas Rell"), RelationPhrase("Nora Quist"), rel.BIRTH_PLACE, same=True
    )
    solution = solved("How many calendar years did Tomas Rell live?")
    assert [type(move.claim) for move in solution.moves[-2:]] == [SubtractionClaim, YearsApartClaim]
    assert solution.moves[-2].claim == SubtractionClaim("1990", "1930", "60")


def test_a_fact_that_serves_both_sides_is_told_once():
    solution = solved("How many calendar years did the director of Paper Lighthouse live?")
    assert [type(move.claim) for move in solution.moves] == [
        FactClaim,
        FactClaim,
        FactClaim,
        SubtractionClaim,
        YearsApartClaim,
    ]
    assert solution.moves[-1].premises == (0, 1, 2)


def test_no_answer_and_two_answers_have_no_solution():
    assert solved("Who directed Golden Tide?") is None
    twice = EvidenceFacts(
        [Passage("0", "X", "X is a drama film. It was directed by Tomas Rell. It was directed by Nora Quist.")]
    )
    assert solve_question(parse_question("Who directed X?"), twice) is None


def test_every_solution_is_told_in_full(items):
    for item in items:
        claims = parse_trace_claims(write_solution_trace(item.solution.moves, "seed"))
        assert [bare(claim) for claim in claims] == [bare(move.claim) for move in item.solution.moves]


def bare(claim):
    """Without the types said of names, which are a matter of wording."""
    parts = {name: getattr(claim, name) for name in ("phrase", "first", "second") if hasattr(claim, name)}
    return replace(
        claim,
        **{name: replace(phrase, kind=None) for name, phrase in parts.items() if isinstance(phrase, RelationPhrase)},
    )


def test_steps_know_which_moves_they_tell(items):
    joined = 0
    for item in items:
        for seed in range(3):
            steps = write_moves_as_steps(item.solution.moves, str(seed))
            assert [index for step in steps for index in step.moves] == list(range(len(item.solution.moves)))
            assert all(("; " in step.text) == (len(step.moves) > 1) for step in steps)
            joined += sum(len(step.moves) > 1 for step in steps)
    assert joined > 10


def test_an_idle_line_comes_first_and_tells_nothing(items):
    item = next(item for item in items if isinstance(item.target, LookupQuestion))
    steps = write_moves_as_steps(item.solution.moves, "seed", idle=item.target.phrase)
    assert steps[0].moves == ()
    (claim,) = parse_trace_claims(Trace.of(steps[0].text))
    assert isinstance(claim, ClaimlessStep)
    assert [index for step in steps[1:] for index in step.moves] == list(range(len(item.solution.moves)))


def test_equal_seeds_give_equal_words_around_a_changed_value():
    def told(value):
        return write_moves_as_steps(
            [SolutionMove(FactClaim(RelationPhrase("Halmere", (rel.POPULATION,)), value), (0,))], "seed"
        )[0].text

    assert told("52300").replace("52,300", "52,301") == told("52301")


@pytest.mark.parametrize(
    ("question", "answer", "forms"),
    [
        ("When was Tomas Rell born?", "1930-05-03", {"3 May 1930", "May 3, 1930"}),
        ("What is the population of Halmere?", "1234", {"1234", "1,234"}),
        ("What is the running time of Paper Lighthouse?", "95", {"95 minutes", "1 hour and 35 minutes"}),
        ("In which year was Paper Lighthouse released?", "1971", {"1971"}),
        ("How many calendar years did Tomas Rell live?", "60", {"60"}),
        ("Who directed Paper Lighthouse?", "Tomas Rell", {"Tomas Rell"}),
        ("Were Tomas Rell and Nora Quist born in the same city?", "yes", {"yes"}),
        ("When was Tomas Rell born?", "not determined", {"not determined"}),
        ("Who directed Paper Lighthouse and wrote Salt Letters?", "Tomas Rell", {"Tomas Rell"}),
    ],
)
def test_the_ways_to_write_an_answer(question, answer, forms):
    target = parse_question(question)
    written = {verbalize_answer(target, answer, Random(seed)) for seed in range(40)}
    assert written == forms
    submitted = {vary_answer_wording(target, answer, Random(seed)) for seed in range(200)}
    assert submitted > written
    assert all(is_same_answer(text, answer) for text in submitted)


def test_a_person_may_be_submitted_surname_first():
    target = parse_question("Who directed Paper Lighthouse?")
    assert "Rell, Tomas R" in {vary_answer_wording(target, "Tomas R Rell", Random(seed)) for seed in range(40)}
    torn = {vary_answer_wording(target, "Tomas Rell or Petra Lind", Random(seed)) for seed in range(40)}
    assert not any("," in text for text in torn)


def test_a_wrong_answer_stays_wrong_however_it_is_put(items):
    for item in items:
        wrong = "Somebody Else" if not item.solution.answer[:1].isdigit() else f"9{item.solution.answer}"
        for seed in range(3):
            answer = vary_answer_wording(item.target, item.solution.answer, Random(seed))
            assert is_same_answer(answer, item.solution.answer)
            assert not is_same_answer(answer, wrong)
