"""What passages establish: values, namesakes, other names, older values, unique answers, and the fewest passages."""

from itertools import combinations

import pytest

from eclose.values.instance import Passage
from eclose_world.language import relations as rel
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose_world.language.questions import (
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    YearSpanQuestion,
    parse_question,
)
from eclose_world.oracle.evidence import (
    EvidenceFact,
    EvidenceFacts,
    ValueDerivation,
    answer_comparison,
    parse_evidence_facts,
    value_sort_key,
)

FILM = ("Paper Lighthouse", "Paper Lighthouse is a 1971 drama film directed by Tomas Rell.")
DIRECTOR = ("Tomas Rell (film director)", "Tomas Rell (born 3 May 1930 in Halmere) is a film director.")
FOOTBALLER = ("Tomas Rell (footballer)", "Tomas Rell (born 9 June 1955 in Brenholt) is a footballer.")
HALMERE = ("Halmere", "Halmere is a small city in Karskland. Halmere has 52,300 inhabitants.")
OTHER = ("Silent Orchard", "Silent Orchard is a 1980 comedy film directed by Nora Marsh.")
NORA = ("Nora Quist", "Nora Quist (born 2 March 1925) is a film director. She is also known as Nora Marsh.")


def passages(*texts):
    return tuple(Passage(str(index), title, text) for index, (title, text) in enumerate(texts))


def evidence(*texts):
    return EvidenceFacts(passages(*texts))


def answers(facts, question):
    target = parse_question(question)
    assert target is not None
    return [way.value for way in facts.find_answers(target)]


def test_one_answer_is_a_unique_one():
    facts = evidence(FILM, DIRECTOR, HALMERE)
    assert answers(facts, "Where was the director of Paper Lighthouse born?") == ["Halmere"]
    assert answers(facts, "What is the population of the birthplace of the director of Paper Lighthouse?") == ["52300"]


def test_two_values_leave_the_answer_ambiguous():
    said_twice = ("Paper Lighthouse", f"{FILM[1]} It was directed by Nora Quist.")
    facts = evidence(said_twice, DIRECTOR, NORA)
    assert answers(facts, "When was the director of Paper Lighthouse born?") == ["1930-05-03", "1925-03-02"]


def test_a_missing_link_gives_no_answer():
    assert answers(evidence(FILM), "Where was the director of Paper Lighthouse born?") == []
    assert answers(evidence(DIRECTOR), "Where was the director of Paper Lighthouse born?") == []
    assert answers(evidence(), "Who directed Paper Lighthouse?") == []


def test_of_two_namesakes_the_role_decides():
    facts = evidence(FILM, DIRECTOR, FOOTBALLER)
    assert answers(facts, "Where was the director of Paper Lighthouse born?") == ["Halmere"]
    # Nothing tells them apart when the name alone is asked for.
    assert answers(facts, "Where was Tomas Rell born?") == ["Halmere", "Brenholt"]


def test_a_role_nobody_has_decides_nothing():
    song = ("Glass Anthem", "Glass Anthem is a song by Tomas Rell.")
    facts = evidence(song, DIRECTOR, FOOTBALLER)
    assert answers(facts, "Where was the performer of Glass Anthem born?") == ["Halmere", "Brenholt"]


def test_a_title_used_twice_is_told_apart_by_what_is_asked():
    book = ("Paper Lighthouse (novel)", "Paper Lighthouse is a 1950 novel by Nora Quist.")
    facts = evidence(FILM, book)
    assert answers(facts, "Who wrote Paper Lighthouse?") == ["Nora Quist"]
    assert answers(facts, "Who directed Paper Lighthouse?") == ["Tomas Rell"]
    assert list(facts.find_facts("Paper Lighthouse", rel.PUBLISHER)) == []


def test_another_name_leads_on_and_its_passage_counts():
    facts = evidence(OTHER, NORA)
    (way,) = facts.find_answers(parse_question("When was the director of Silent Orchard born?"))
    assert way.value == "1925-03-02"
    assert [hop.relation.name for hop in way.hops] == ["director", "alias", "birth date"]
    assert way.support == {0, 1}
    assert facts.same_entity("Nora Quist", "Nora Marsh")
    assert facts.same_entity("Nora Marsh", "Nora Quist")
    assert facts.same_entity("Halmere", "Halmere")
    assert not facts.same_entity("Nora Quist", "Tomas Rell")


def test_a_link_may_stand_in_a_third_passage():
    nora = ("Nora Quist", "Nora Quist (born 2 March 1925) is a film director.")
    link = ("Halmere", "Halmere is a small city. Nora Quist is also known as Nora Marsh.")
    (way,) = evidence(OTHER, nora, link).find_answers(parse_question("When was the director of Silent Orchard born?"))
    assert way.support == {0, 1, 2}


@pytest.mark.parametrize(
    "older", ["In 1950 the population of Halmere was 31,000.", "At the census of 1950 it had 31,000 inhabitants."]
)
def test_an_older_dated_value_is_not_the_present_one(older):
    for text in (f"{HALMERE[1]} {older}", f"{older} {HALMERE[1]}"):
        assert answers(evidence(("Halmere", text)), "What is the population of Halmere?") == ["52300"]


def test_an_older_value_told_elsewhere_is_not_the_present_one_either():
    elsewhere = ("Karskland", "Karskland is a old republic. In 1950 the population of Halmere was 31,000.")
    for texts in ((HALMERE, elsewhere), (elsewhere, HALMERE)):
        assert answers(evidence(*texts), "What is the population of Halmere?") == ["52300"]
    newer = ("Karskland", "Karskland is a old republic. Halmere has 60,000 inhabitants.")
    old = ("Halmere", "Halmere is a small city. In 1950 the population of Halmere was 31,000.")
    assert answers(evidence(old, newer), "What is the population of Halmere?") == ["60000"]


def test_of_older_values_alone_the_latest_counts():
    text = "Halmere is a small city. In 1950 the population of Halmere was 31,000. In 1980 it had 40,000 inhabitants."
    dated = text.replace("In 1980 it", "At the census of 1980 it")
    assert answers(evidence(("Halmere", dated)), "What is the population of Halmere?") == ["40000"]


def test_a_fact_may_be_told_in_somebody_elses_article():
    city = ("Halmere", "Halmere is a small city. Tomas Rell was born in Halmere.")
    (way,) = evidence(FILM, city).find_answers(parse_question("Where was the director of Paper Lighthouse born?"))
    assert (way.value, way.support) == ("Halmere", {0, 1})


def test_minimal_support_takes_the_passages_the_answer_needs_and_no_more():
    # The director is named in three passages; the one that is needed anyway serves both facts.
    told_again = (
        "Tomas Rell",
        "Tomas Rell (born 3 May 1930 in Halmere) is a film director. He directed Paper Lighthouse.",
    )
    gossip = ("Halmere", "Halmere is a small city. Tomas Rell directed Paper Lighthouse.")
    target = parse_question("Where was the director of Paper Lighthouse born?")
    (way,) = evidence(FILM, gossip, told_again).find_answers(target)
    assert way.hops[0].passages == (0, 1, 2)
    assert way.support == {2}
    (way,) = evidence(gossip, FILM, DIRECTOR).find_answers(target)
    assert way.support == {0, 2}


def test_of_two_ways_to_an_answer_the_shorter_is_kept():
    facts = evidence(
        ("Paper Lighthouse", f"{FILM[1]} It was directed by Nora Quist."),
        ("Tomas Rell", "Tomas Rell is a film director. He was born in Halmere."),
        ("Nora Quist", "Nora Quist is a film director."),
        ("Paper Lighthouse (film)", "Paper Lighthouse is a drama film by Nora Quist. Nora Quist was born in Halmere."),
    )
    (way,) = facts.find_answers(parse_question("Where was the director of Paper Lighthouse born?"))
    assert (way.value, way.support) == ("Halmere", {3})


def test_the_support_of_nothing_is_empty():
    assert ValueDerivation("x", ()).support == frozenset()
    assert ValueDerivation("x", (EvidenceFact("a", rel.MOTHER, "b", (4, 2)),)).support == {2}


@pytest.mark.parametrize("kind", [LookupQuestion, ComparisonQuestion, SameValueQuestion, YearSpanQuestion])
def test_support_is_minimal_by_trying_every_smaller_set(kind, items):
    tried = 0
    for item in [item for item in items if isinstance(item.target, kind)][:12]:
        passages = item.instance.evidence
        (way,) = parse_evidence_facts(passages).find_answers(item.target)
        assert any(
            answer.value == way.value
            for answer in EvidenceFacts(passages[i] for i in sorted(way.support)).find_answers(item.target)
        )
        for size in range(len(way.support)):
            for some in combinations(sorted(way.support), size):
                less = EvidenceFacts(passages[i] for i in some).find_answers(item.target)
                assert all(solution.value != way.value for solution in less)
                tried += 1
    assert tried


def test_comparisons_are_settled_by_value():
    facts = evidence(FILM, OTHER, DIRECTOR, NORA)
    assert answers(facts, "Which film was released first, Paper Lighthouse or Silent Orchard?") == ["Paper Lighthouse"]
    assert answers(facts, "Which film came out last, Paper Lighthouse or Silent Orchard?") == ["Silent Orchard"]
    older = "Which film's director is older, Paper Lighthouse or Silent Orchard?"
    assert answers(facts, older) == ["Silent Orchard"]
    span = "How many years lie between the birth date of Nora Quist and the release year of Silent Orchard?"
    assert answers(facts, span) == ["55"]


def test_agreement_knows_that_two_names_may_be_one_person():
    third = ("Golden Tide", "Golden Tide is a drama film by Nora Quist.")
    facts = evidence(OTHER, NORA, third, FILM)
    assert answers(facts, "Were Silent Orchard and Golden Tide directed by the same person?") == ["yes"]
    assert answers(facts, "Were Silent Orchard and Paper Lighthouse directed by the same person?") == ["no"]


def test_a_tie_has_no_answer():
    twin = ("Golden Tide", "Golden Tide is a 1971 drama film directed by Nora Quist.")
    assert answers(evidence(FILM, twin), "Which film came out last, Paper Lighthouse or Golden Tide?") == []
    choose = ComparisonQuestion(("A", "B"), rel.FILM, (), rel.RELEASED, least=True)
    assert answer_comparison(choose, "1971", "1971") is None


def test_whoever_did_two_things_did_both():
    book = ("Salt Letters", "Salt Letters is a novel by Tomas Rell.")
    facts = evidence(FILM, book, OTHER, DIRECTOR)
    deeds = ((rel.DIRECTOR, "Paper Lighthouse"), (rel.AUTHOR, "Salt Letters"))
    (way,) = facts.derive(RelationPhrase(PersonOfTwoDeeds(deeds)))
    assert (way.value, way.support) == ("Tomas Rell", {0, 1})
    assert [w.value for w in facts.derive(RelationPhrase(PersonOfTwoDeeds(deeds), (rel.BIRTH_PLACE,)))] == ["Halmere"]
    other = ((rel.DIRECTOR, "Silent Orchard"), (rel.AUTHOR, "Salt Letters"))
    assert facts.derive(RelationPhrase(PersonOfTwoDeeds(other))) == []


def test_unread_sentences_are_kept_with_their_passage():
    facts = evidence(FILM, ("Halmere", "Halmere is nice. Halmere is a small city."))
    assert facts.unread == [(1, "Halmere is nice")]


def test_order_is_by_number_not_by_letters():
    assert sorted(["1234", "96", "45600"], key=value_sort_key) == ["96", "1234", "45600"]
    assert value_sort_key("1950-05-07") < value_sort_key("1950-12-01") < value_sort_key("1951-01-01")


def test_equal_passages_are_read_once():
    assert parse_evidence_facts(passages(FILM)) is parse_evidence_facts(passages(FILM))
