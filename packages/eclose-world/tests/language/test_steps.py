"""What a writer can say in a step, a reader understands: every opener, every form, every kind of claim."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from eclose_world.language import names
from eclose_world.language import relations as rel
from eclose_world.language import steps as grammar
from eclose_world.language.claims import (
    ClaimlessStep,
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    PronounReferents,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.phrases import (
    FactTriple,
    PersonOfTwoDeeds,
    RelationPhrase,
    capitalise_sentence,
    verbalize_fact,
    verbalize_phrase,
)
from eclose_world.language.questions import list_superlative_wordings
from eclose_world.language.relations import AGREEMENT_FORMS, COMPARISON_WORDS, RELATIONS, ROLE_NOUNS, TYPE_WORDS
from eclose_world.language.steps import TraceStepWriter, parse_step_claims
from eclose_world.language.values import ValueKind, draw_surface_form
from tests.tables import each_row

A, B = "Paper Lighthouse", "The Orchard of the Silent Tide"
ONE, OTHER = "Tomas R Rell", "Petra Lind"
DIRECTED = FactClaim(RelationPhrase(A, (rel.DIRECTOR,)), ONE)
LITERALS = {ValueKind.DATE: "1950-05-07", ValueKind.YEAR: "1971", ValueKind.NUMBER: "45600", ValueKind.MINUTES: "95"}


def read(text):
    return parse_step_claims(text, PronounReferents())


def spoken(core):
    return capitalise_sentence(core) + "."


OPENERS = sorted({*grammar._OPENERS, *grammar._CONCLUDERS})


@each_row(product(OPENERS, ["", " [0]", " [12]", " [3] [4]"]))
def test_every_opener_and_citation_is_seen_through(opener, citation):
    assert read(spoken(f"{opener.replace('{n}', '7')}{A} was directed by {ONE}{citation}")) == (DIRECTED,)


@each_row([(relation, form) for relation in RELATIONS for form in relation.forms])
def test_every_form_is_a_step(relation, form):
    value = ONE if relation.object else LITERALS[relation.kind]
    triple = FactTriple(RelationPhrase(A), relation, value)
    for seed in range(4):
        core = verbalize_fact(triple, Random(seed), form=form)
        assert read(spoken(core)) == (FactClaim(RelationPhrase(A, (relation,)), value),), core


@each_row([(relation, phrase) for relation in RELATIONS for phrase in relation.phrases])
def test_every_phrase_is_something_and_something_is_every_phrase(relation, phrase):
    value = ONE if relation.object else LITERALS[relation.kind]
    words = phrase.replace("{x}", A)
    for seed in range(4):
        core = f"{words} is {draw_surface_form(relation.kind, value, Random(seed))}"
        assert read(spoken(core)) == (FactClaim(RelationPhrase(A, (relation,)), value),)
    if relation.object:
        assert read(spoken(f"{value} is {words}")) == (FactClaim(RelationPhrase(A, (relation,)), value),)


@each_row(product(COMPARISON_WORDS, [True, False]))
def test_every_comparison_word_reads_back(attribute, less):
    first, second = RelationPhrase(A, (attribute,)), RelationPhrase(B, (attribute,))
    for words in COMPARISON_WORDS[attribute].less if less else COMPARISON_WORDS[attribute].more:
        assert read(spoken(f"{A} {words} {B}")) == (ComparisonClaim(first, second, less),)


@each_row(product(COMPARISON_WORDS, [True, False]))
def test_every_superlative_reads_back(attribute, least):
    for words in list_superlative_wordings(attribute, least=least):
        assert read(spoken(f"{A} {words}")) == (SuperlativeClaim(A, attribute.subject, (), attribute, least),)
        if attribute.subject != rel.PERSON:
            continue
        for role, noun in ROLE_NOUNS.items():
            expected = (SuperlativeClaim(A, role.subject, (role,), attribute, least),)
            assert read(spoken(f"{A} has the {noun} who {words}")) == expected
            for kind in TYPE_WORDS[role.subject]:
                assert read(spoken(f"{A} is the {kind} whose {noun} {words}")) == expected


@pytest.mark.parametrize(
    ("relation", "forms"), [(relation, forms) for relation, all_ in AGREEMENT_FORMS.items() for forms in all_]
)
def test_every_form_of_agreement_reads_back(relation, forms):
    for template, same in ((forms[1], True), (forms[2], False)):
        core = template.replace("{x}", A).replace("{y}", B)
        assert read(spoken(core)) == (SameValueClaim(RelationPhrase(A), RelationPhrase(B), relation, same),)


@pytest.mark.parametrize("template", grammar._UNCOVERED)
def test_every_form_of_missing_evidence_reads_back(template):
    phrase = RelationPhrase(A, (rel.DIRECTOR, rel.MOTHER), rel.FILM)
    assert read(spoken(template.replace("{x}", verbalize_phrase(phrase, Random(1))))) == (MissingFactClaim(phrase),)


@pytest.mark.parametrize("template", grammar._APART)
def test_every_form_of_a_span_reads_back(template):
    first, second = RelationPhrase(A, (rel.DIRECTOR, rel.BIRTH_DATE)), RelationPhrase(A, (rel.RELEASED,))
    core = template.replace("{x}", f"the birth date of the director of {A}").replace("{y}", f"the release year of {A}")
    assert read(spoken(f"{core}41")) == (YearsApartClaim(first, second, "41"),)
    assert read(spoken(template.replace("{x}", A).replace("{y}", B) + "41")) is None


def test_denial_reads_back_and_denies_a_fact_only():
    assert read(f"It is not the case that {A} was directed by {ONE}.") == (NegatedFactClaim(DIRECTED),)
    assert read(f"It is not the case that {A} was a triumph.") is None


@pytest.mark.parametrize(("kind", "template"), [(kind, form) for kind, all_ in grammar._IDLE.items() for form in all_])
def test_every_idle_step_is_known_to_assert_nothing(kind, template):
    phrase = RelationPhrase(A, (rel.DIRECTOR, rel.MOTHER), rel.FILM)
    assert read(spoken(template.replace("{x}", verbalize_phrase(phrase, Random(3))))) == (kind,)


def test_an_idle_step_may_cite_too():
    assert read("Let us read the passages [3].") == (ClaimlessStep.TRANSITION,)


def test_an_idle_step_about_something_unknown_is_not_read():
    assert read("First, find a good restaurant.") is None


@pytest.mark.parametrize("kind", list(ClaimlessStep))
def test_the_writer_writes_idle_steps_of_every_kind(kind):
    written = {
        TraceStepWriter(Random(seed)).write_idle_step(kind, RelationPhrase(A, (rel.DIRECTOR,))) for seed in range(60)
    }
    assert len(written) >= len(grammar._IDLE[kind])
    assert {read(text) for text in written} == {(kind,)}
    assert read(TraceStepWriter(Random(1)).write_step(ClaimlessStep.TRANSITION, 3)) == (ClaimlessStep.TRANSITION,)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("1971 - 1930 = 41.", SubtractionClaim("1971", "1930", "41")),
        ("So 1971 minus 1930 is 41.", SubtractionClaim("1971", "1930", "41")),
        ("7 May 1950 is earlier than May 8, 1950.", ValueOrderClaim("1950-05-07", "1950-05-08", less=True)),
        ("1971 is later than 1950.", ValueOrderClaim("1971", "1950", less=False)),
        ("45,600 is more than 45599.", ValueOrderClaim("45600", "45599", less=False)),
        ("96 is less than 1,234.", ValueOrderClaim("96", "1234", less=True)),
        ("1 hour and 35 minutes is less than 96 minutes.", ValueOrderClaim("95", "96", less=True)),
    ],
)
def test_arithmetic_reads_back(text, claim):
    assert read(text) == (claim,)


def random_name(kind, rng):
    makers = {rel.PERSON: names.draw_person_name, rel.COMPANY: names.draw_company_name, rel.CITY: names.draw_city_name}
    return makers.get(kind, names.draw_work_title)(rng)


def random_fact(rng):
    relation = rng.choice(RELATIONS)
    base, path = random_name(relation.subject, rng), (relation,)
    if rng.random() < 0.4 and (before := [bridge for bridge in RELATIONS if bridge.object == relation.subject]):
        path = (rng.choice(before), relation)
        base = random_name(path[0].subject, rng)
    value = random_name(relation.object, rng) if relation.object else LITERALS[relation.kind]
    return FactClaim(RelationPhrase(base, path), value)


def random_claim(rng):
    fact = random_fact(rng)
    attribute = rng.choice(list(COMPARISON_WORDS))
    first, second = (
        RelationPhrase(random_name(attribute.subject, rng)),
        RelationPhrase(random_name(attribute.subject, rng)),
    )
    agreed = rng.choice(list(AGREEMENT_FORMS))
    deeds = ((rel.DIRECTOR, names.draw_work_title(rng)), (rel.AUTHOR, names.draw_work_title(rng)))
    number = rng.choice(["96", "1971", "45600", "1950-05-07"])
    yes = rng.random() < 0.5
    return rng.choice(
        [
            fact,
            fact,
            FactClaim(RelationPhrase(PersonOfTwoDeeds(deeds)), names.draw_person_name(rng)),
            FactClaim(RelationPhrase(PersonOfTwoDeeds(deeds), (rel.MOTHER,)), names.draw_person_name(rng)),
            NegatedFactClaim(fact),
            MissingFactClaim(fact.phrase),
            ComparisonClaim(first.then(attribute), second.then(attribute), yes),
            ValueOrderClaim(number, number.replace("9", "8"), yes),
            SuperlativeClaim(names.draw_work_title(rng), attribute.subject, (), attribute, yes),
            SuperlativeClaim(names.draw_work_title(rng), rel.FILM, (rel.DIRECTOR,), rel.DEATH_DATE, yes),
            SameValueClaim(first, second, agreed, yes),
            SameValueClaim(first.then(rel.SPOUSE), second.then(rel.MOTHER), rel.EDUCATED, yes),
            SubtractionClaim("1971", "1930", "41"),
            YearsApartClaim(first.then(rel.BIRTH_DATE), second.then(rel.RELEASED), "41"),
        ]
    )


@each_row(range(60))
def test_whole_traces_read_back_pronouns_and_all(seed):
    rng = Random(seed)
    writer, discourse = TraceStepWriter(rng), PronounReferents()
    for number in range(25):
        claim = random_claim(rng)
        text = writer.write_step(claim, rng.choice([None, number]), conclusion=rng.random() < 0.3)
        assert parse_step_claims(text, discourse) == (claim,), text


@pytest.mark.slow
def test_two_claims_share_a_line_and_both_are_read():
    rng = Random(4)
    for _ in range(300):
        writer = TraceStepWriter(rng)
        claims = tuple(random_claim(rng) for _ in range(rng.choice([2, 3])))
        line = writer.join_steps(tuple(writer.write_step(claim, 2) for claim in claims))
        assert read(line) == claims, line


def chain(text):
    discourse = PronounReferents()
    return [parse_step_claims(line, discourse) for line in text.strip().splitlines()]


def test_pronouns_stand_for_whoever_was_mentioned_last():
    steps = chain(
        f"""{A} was directed by {ONE}.
        He was born in Halmere.
        It was released in 1971.
        It lies in Karskland.
        The mother of {ONE} was {OTHER}.
        She was educated at Halmere University."""
    )
    assert steps[1] == (FactClaim(RelationPhrase(ONE, (rel.BIRTH_PLACE,)), "Halmere"),)
    # Halmere is the thing mentioned last, and a city is never released.
    assert steps[2] == (FactClaim(RelationPhrase("Halmere", (rel.RELEASED,)), "1971"),)
    assert steps[3] == (FactClaim(RelationPhrase("Halmere", (rel.LIES_IN,)), "Karskland"),)
    assert steps[5] == (FactClaim(RelationPhrase(OTHER, (rel.EDUCATED,)), "Halmere University"),)


def test_pronouns_are_resolved_in_every_kind_of_claim():
    steps = chain(
        f"""{A} was directed by {ONE}.
        He directed {B}.
        It is not the case that he was born in Halmere.
        The passages do not state the mother of he.
        He is older than {OTHER}.
        He and {OTHER} were born in the same city.
        The number of years between the birth date of he and the release year of {A} is 41."""
    )
    assert steps[1] == (FactClaim(RelationPhrase(B, (rel.DIRECTOR,)), ONE),)
    assert steps[2] == (NegatedFactClaim(FactClaim(RelationPhrase(ONE, (rel.BIRTH_PLACE,)), "Halmere")),)
    assert steps[3] == (MissingFactClaim(RelationPhrase(ONE, (rel.MOTHER,))),)
    assert steps[4] == (
        ComparisonClaim(RelationPhrase(ONE, (rel.BIRTH_DATE,)), RelationPhrase(OTHER, (rel.BIRTH_DATE,)), less=True),
    )
    assert steps[5] == (SameValueClaim(RelationPhrase(ONE), RelationPhrase(OTHER), rel.BIRTH_PLACE, same=True),)
    assert steps[6] == (
        YearsApartClaim(RelationPhrase(ONE, (rel.BIRTH_DATE,)), RelationPhrase(A, (rel.RELEASED,)), "41"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "He was born in Halmere.",
        f"He directed {A}.",
        "It is not the case that he was born in Halmere.",
        "The passages do not state the mother of he.",
        f"He is older than {OTHER}.",
        f"{OTHER} is older than she.",
        f"She and {OTHER} were born in the same city.",
    ],
)
def test_a_pronoun_without_anybody_is_not_read(text):
    assert read(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paper Lighthouse is a masterpiece.",
        "Paper Lighthouse is Silent Orchard.",
        "The director liked it.",
        "So.",
        f"{A} was directed by {ONE}; nobody knows more.",
        f"{A} was directed by {ONE} and {OTHER} was the mother of {ONE}.",
        "The director of Paper Lighthouse is unknown.",
    ],
)
def test_what_cannot_be_read_is_none_as_a_whole(text):
    assert read(text) is None


def test_a_writer_uses_pronouns_where_they_are_clear():
    person = FactClaim(RelationPhrase(A, (rel.DIRECTOR,)), OTHER)
    born, released = (
        FactClaim(RelationPhrase(OTHER, (rel.BIRTH_PLACE,)), "Halmere"),
        FactClaim(RelationPhrase(A, (rel.RELEASED,)), "1971"),
    )
    first_words = set()
    for seed in range(80):
        writer = TraceStepWriter(Random(seed))
        writer.write_step(person)
        first_words |= {writer.write_step(replace(released)).split()[0], writer.write_step(born).split()[0]}
    assert {"She", "It"} <= first_words
