"""Every question the tables can ask reads back as what it asks for, and nothing else is read."""

from itertools import product
from random import Random

import pytest

from eclose_world.language import names as lexicon
from eclose_world.language import relations as rel
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase, verbalize_deeds, verbalize_phrase
from eclose_world.language.questions import (
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    YearSpanQuestion,
    list_superlative_wordings,
    parse_question,
    verbalize_question,
)
from eclose_world.language.relations import (
    AGREEMENT_FORMS,
    COMPARISON_WORDS,
    COMPOUND_PHRASES,
    DEED_VERBS,
    RELATIONS,
    ROLE_NOUNS,
    TYPE_WORDS,
)
from eclose_world.language.values import ValueKind
from tests.tables import each_row

A, B = "Paper Lighthouse", "The Orchard of the Silent Tide"


@each_row([(relation, ask) for relation in RELATIONS for ask in relation.asks])
def test_every_ask_reads_back(relation, ask):
    rng = Random(ask)
    for name in (
        A,
        B,
        lexicon.draw_person_name(rng),
        lexicon.draw_city_name(rng),
        lexicon.draw_company_name(rng),
        lexicon.draw_university_name(rng),
    ):
        assert parse_question(ask.replace("{x}", name)) == LookupQuestion(RelationPhrase(name, (relation,)))
        for word in TYPE_WORDS[relation.subject]:
            typed = LookupQuestion(RelationPhrase(name, (relation,), relation.subject))
            assert parse_question(ask.replace("{x}", f"the {word} {name}")) == typed
    for first in (candidate for candidate in RELATIONS if candidate.object == relation.subject):
        phrase = RelationPhrase(A, (first, relation))
        inner = verbalize_phrase(RelationPhrase(A, (first,)), rng)
        assert parse_question(ask.replace("{x}", inner)) == LookupQuestion(phrase)


DIRECT = [
    (attribute, least, words, kind)
    for attribute in COMPARISON_WORDS
    for least in (True, False)
    for words in list_superlative_wordings(attribute, least=least)
    for kind in TYPE_WORDS[attribute.subject]
]


@each_row(DIRECT)
def test_every_choice_reads_back(attribute, least, words, kind):
    head = "Who" if kind == "person" else f"Which {kind}"
    expected = ComparisonQuestion((A, B), attribute.subject, (), attribute, least)
    assert parse_question(f"{head} {words}, {A} or {B}?") == expected


@pytest.mark.parametrize("role", ROLE_NOUNS)
@pytest.mark.parametrize("attribute", [candidate for candidate in COMPARISON_WORDS if candidate.subject == rel.PERSON])
@pytest.mark.parametrize("least", [True, False])
def test_every_choice_by_the_people_behind_reads_back(role, attribute, least):
    expected = ComparisonQuestion((A, B), role.subject, (role,), attribute, least)
    for words in list_superlative_wordings(attribute, least=least):
        for kind in TYPE_WORDS[role.subject]:
            for link in (f"{kind} has the {ROLE_NOUNS[role]} who", f"{kind}'s {ROLE_NOUNS[role]}"):
                assert parse_question(f"Which {link} {words}, {A} or {B}?") == expected


@pytest.mark.parametrize(
    ("relation", "form"), [(relation, form[0]) for relation, forms in AGREEMENT_FORMS.items() for form in forms]
)
def test_every_question_of_agreement_reads_back(relation, form):
    assert parse_question(form.replace("{x}", A).replace("{y}", B)) == SameValueQuestion(
        RelationPhrase(A), RelationPhrase(B), relation
    )
    if relation.subject == rel.PERSON:
        first, second = RelationPhrase(A, (rel.DIRECTOR,), rel.FILM), RelationPhrase(B, (rel.AUTHOR,), rel.BOOK)
        text = form.replace("{x}", f"the director of the film {A}").replace("{y}", f"the writer of the novel {B}")
        assert parse_question(text) == SameValueQuestion(first, second, relation)


DATED = [relation for relation in RELATIONS if relation.kind in (ValueKind.DATE, ValueKind.YEAR)]


@each_row(product(DATED, DATED))
def test_every_span_reads_back(left, right):
    rng = Random(0)
    target = YearSpanQuestion(RelationPhrase(A, (left,)), RelationPhrase(B, (right,)))
    for _ in range(6):
        assert parse_question(verbalize_question(target, rng)) == target


def test_a_life_is_a_span():
    whose = RelationPhrase(A, (rel.DIRECTOR,))
    life = YearSpanQuestion(whose.then(rel.BIRTH_DATE), whose.then(rel.DEATH_DATE))
    rng = Random(1)
    questions = {verbalize_question(life, rng) for _ in range(40)}
    assert any("live?" in question for question in questions)
    assert any("between" in question for question in questions)
    assert {parse_question(question) for question in questions} == {life}


@pytest.mark.parametrize(
    "text",
    [
        f"How many years lie between {A} and {B}?",
        "How many years lie between the birthplace of Petra Lind and the birth date of Petra Lind?",
        "How many calendar years separate the population of Halmere from the population of Brenholt?",
    ],
)
def test_nothing_lies_between_what_has_no_date(text):
    assert parse_question(text) is None


@each_row(product(DEED_VERBS, DEED_VERBS, ["Who", "Which person"]))
def test_every_pair_of_deeds_can_be_asked_for(first, second, head):
    deeds = ((first, A), (second, B))
    assert parse_question(f"{head} {verbalize_deeds(deeds)}?") == LookupQuestion(
        RelationPhrase(PersonOfTwoDeeds(deeds))
    )


@pytest.mark.parametrize("template", COMPOUND_PHRASES)
@pytest.mark.parametrize("head", ["Who", "What"])
def test_every_macro_can_be_asked_for(template, head):
    assert parse_question(f"{head} is {template.replace('{x}', 'Petra Lind')}?") == LookupQuestion(
        RelationPhrase("Petra Lind", COMPOUND_PHRASES[template])
    )


def random_target(rng):
    shape = rng.randrange(5)
    if shape == 0:
        path = rng.choice(
            [(rel.DIRECTOR, rel.MOTHER), (rel.DIRECTOR, *rng.choice(list(COMPOUND_PHRASES.values()))), (rel.STAR,)]
        )
        return LookupQuestion(RelationPhrase(lexicon.draw_work_title(rng), path, rng.choice([None, rel.FILM])))
    if shape == 1:
        path = rng.choice([(), (rel.BIRTH_PLACE,), (rel.SPOUSE, rel.EDUCATED, rel.SEATED)])
        deeds = tuple((rng.choice(list(DEED_VERBS)), lexicon.draw_work_title(rng)) for _ in range(2))
        return LookupQuestion(RelationPhrase(PersonOfTwoDeeds(deeds), path))
    if shape == 2:
        attribute = rng.choice(list(COMPARISON_WORDS))
        names = (lexicon.draw_work_title(rng), lexicon.draw_work_title(rng))
        if attribute.subject == rel.PERSON and rng.random() < 0.5:
            role = rng.choice(list(ROLE_NOUNS))
            return ComparisonQuestion(names, role.subject, (role,), attribute, rng.random() < 0.5)
        return ComparisonQuestion(names, attribute.subject, (), attribute, rng.random() < 0.5)
    if shape == 3:
        relation = rng.choice(list(AGREEMENT_FORMS))
        sides = (
            RelationPhrase(
                lexicon.draw_work_title(rng), (), relation.subject if relation.subject != rel.PERSON else None
            ),
        ) * 2
        return SameValueQuestion(*sides, relation)
    base = RelationPhrase(lexicon.draw_work_title(rng), (), rel.FILM)
    return YearSpanQuestion(base.then(rel.DIRECTOR, rel.BIRTH_DATE), base.then(rel.RELEASED))


@pytest.mark.slow
def test_questions_of_any_make_read_back():
    rng = Random(9)
    for _ in range(1_500):
        target = random_target(rng)
        question = verbalize_question(target, rng)
        assert parse_question(question) == target, question
        assert parse_question(f" {question}\n") == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Why?",
        "Who is Tomas Rell?",
        "Who directed?",
        "Who directed the colour of Halmere?",
        f"Which film is better, {A} or {B}?",
        f"Which novel's director was born first, {A} or {B}?",
        "In which year was the person Tomas Rell released?",
        "Who sang and danced?",
        "How many calendar years did nobody live?",
        "Were Halmere and nobody born in the same city?",
    ],
)
def test_what_the_grammar_does_not_know_is_none(text):
    assert parse_question(text) is None


def test_a_comparison_knows_its_two_values():
    choose = ComparisonQuestion((A, B), rel.FILM, (rel.DIRECTOR,), rel.BIRTH_DATE, least=True)
    path = (rel.DIRECTOR, rel.BIRTH_DATE)
    assert choose.phrases() == (RelationPhrase(A, path, rel.FILM), RelationPhrase(B, path, rel.FILM))
    agree = SameValueQuestion(RelationPhrase("X"), RelationPhrase("Y"), rel.LIES_IN)
    assert agree.phrases() == (RelationPhrase("X", (rel.LIES_IN,)), RelationPhrase("Y", (rel.LIES_IN,)))
    span = YearSpanQuestion(RelationPhrase(A, (rel.RELEASED,)), RelationPhrase(B, (rel.RELEASED,)))
    assert span.phrases() == (span.first, span.second)
