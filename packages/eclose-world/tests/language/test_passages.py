"""Passages say what the facts are, in many ways, and are read from their words alone."""

from random import Random

import pytest

from eclose_world.language import relations as rel
from eclose_world.language.names import GENRES
from eclose_world.language.passages import (
    _DATED,
    _OPENINGS,
    BY_KIND,
    POOLS,
    draw_filler_sentence,
    is_filler_sentence,
    parse_passage_facts,
    write_entity_passage,
)
from eclose_world.language.phrases import capitalise_sentence, replace_an_by_a
from eclose_world.language.relations import COMPARISON_WORDS, RELATIONS, TYPE_WORDS
from eclose_world.language.scene_facts import FactStatement, QuestionScene, WorldEntity
from eclose_world.language.values import ValueKind
from eclose_world.make.instances import make_world_item
from tests.tables import each_row

KINDS = tuple(TYPE_WORDS)


def furnished(kind, seed):
    scene = QuestionScene(Random(f"{kind}{seed}"))
    entity = scene.add_entity(kind)
    for relation in (candidate for candidate in RELATIONS if candidate.subject == kind):
        if scene.rng.random() < 0.6:
            entity.state(relation, scene.draw_value(relation))
    scene.add_common_facts(entity)
    return entity


@pytest.mark.parametrize("kind", KINDS)
def test_every_statement_of_an_entity_reads_back_from_its_passage(kind):
    for seed in range(60):
        entity = furnished(kind, seed)
        passage = write_entity_passage(entity, 0, seed=str(seed), words=20 + seed)
        reading = parse_passage_facts(passage.title, passage.text)
        assert reading.unread == ()
        assert (reading.name, reading.kind) == (entity.name, kind)
        assert reading.occupation == entity.occupation
        assert set(reading.statements) == set(entity.statements), passage.text


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["2wiki", "musique", "hotpot"])
def test_every_statement_of_every_entity_of_an_item_reads_back(profile):
    for index in range(25):
        item = make_world_item(profile, 3, index)
        for entity, passage in zip(item.entities, item.instance.evidence, strict=True):
            reading = parse_passage_facts(passage.title, passage.text)
            assert set(reading.statements) == set(entity.statements), passage.text
            assert reading.unread == ()
            # Rows of RAG tools have no titles.
            assert parse_passage_facts("", passage.text) == reading


@each_row([(kind, opening) for kind, all_ in _OPENINGS.items() for opening in all_])
def test_every_opening_reads_back(kind, template):
    entity = WorldEntity(kind, "Halmere", "Halmere", occupation="botanist" if kind == rel.PERSON else None)
    scene = QuestionScene(Random(template))
    slots = {"{occupation}": "botanist", "{genre}": GENRES[0], "{industry}": "shipping", "{adjective}": "old",
             "{field}": "translation", "{state}": "republic", "{s}": "Halmere"}  # fmt: skip
    expected = set()
    text = template
    for slot, relation in (
        ("{released}", rel.RELEASED), ("{director}", rel.DIRECTOR), ("{published}", rel.PUBLISHED),
        ("{author}", rel.AUTHOR), ("{issued}", rel.ISSUED), ("{performer}", rel.PERFORMER),
        ("{country}", rel.LIES_IN), ("{seat}", rel.HEADQUARTERS), ("{founded}", rel.FOUNDED),
        ("{location}", rel.SEATED), ("{birthplace}", rel.BIRTH_PLACE),
    ):  # fmt: skip
        if slot in text:
            value = scene.draw_value(relation)
            expected.add(FactStatement(None, relation, value))
            text = text.replace(slot, value)
    for slot, relation, day in (("{born}", rel.BIRTH_DATE, "3 May 1930"), ("{died}", rel.DEATH_DATE, "May 3, 1990")):
        if slot in text:
            expected.add(FactStatement(None, relation, "1930-05-03" if relation is rel.BIRTH_DATE else "1990-05-03"))
            text = text.replace(slot, day)
    for slot, word in slots.items():
        text = text.replace(slot, word)
    reading = parse_passage_facts("Halmere (note)", capitalise_sentence(text) + ".")
    assert (set(reading.statements), reading.unread) == (expected, ())
    assert (reading.name, reading.kind, reading.occupation) == ("Halmere", kind, entity.occupation)


def test_an_opening_with_a_value_of_the_wrong_kind_is_not_read():
    assert parse_passage_facts("Halmere", "Halmere is a drama film from spring.").unread == (
        "Halmere is a drama film from spring",
    )
    assert parse_passage_facts("Halmere", "Brenholt is an old city.").unread == ("Brenholt is a old city",)


@pytest.mark.parametrize(("relation", "template"), [(dated, form) for dated, forms in _DATED.items() for form in forms])
def test_every_dated_form_reads_back_with_its_year(relation, template):
    name = "Halmere Works"
    value, written = ("Brenholt", "Brenholt") if relation.object else ("8100", "8,100")
    for whom, subject in ((name, None), ("it", None), ("Other Works", "Other Works")):
        core = template.replace("{era}", "1950").replace("{s}", whom).replace("{o}", written)
        reading = parse_passage_facts(name, capitalise_sentence(core) + ".")
        assert reading.statements == (FactStatement(subject, relation, value, 1950),)
    nonsense = template.replace("{era}", "May").replace("{s}", name).replace("{o}", written)
    assert parse_passage_facts(name, capitalise_sentence(nonsense) + ".").statements == ()


@each_row([(kind, filler) for kind, all_ in BY_KIND.items() for filler in all_])
def test_every_sentence_that_says_nothing_is_known_as_such(kind, template):
    rng = Random(template)
    for _ in range(10):
        used = {other for other in BY_KIND[kind] if other != template}
        written = draw_filler_sentence(kind, rng, used)
        assert written is not None
        assert is_filler_sentence(replace_an_by_a(capitalise_sentence(written)))
        assert draw_filler_sentence(kind, rng, used) is None
        reading = parse_passage_facts("Halmere", capitalise_sentence(written) + ".")
        assert (reading.statements, reading.unread) == ((), ())


def test_every_word_of_every_pool_is_known():
    for kind, templates in BY_KIND.items():
        for template in templates:
            for slot, pool in POOLS.items():
                for word in pool if f"{{{slot}}}" in template else ():
                    text = template
                    for other, words in POOLS.items():
                        text = text.replace(f"{{{other}}}", word if other == slot else words[0])
                    assert is_filler_sentence(replace_an_by_a(capitalise_sentence(text))), (kind, text)


def test_a_sentence_that_says_nothing_with_a_fact_in_it_is_not_one():
    assert not is_filler_sentence("A foundation for memory bears its name, and it was founded by Tomas Rell")
    assert not is_filler_sentence("")


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("Tomas Rell was a genius.", ("Tomas Rell was a genius",)),
        ("Tomas Rell was born in spring.", ("Tomas Rell was born in spring",)),
        ("The director of Golden Tide was born in Halmere.", ("The director of Golden Tide was born in Halmere",)),
        ("He was born in Halmere, and nobody noticed.", ("nobody noticed",)),
        ("Nobody noticed, and nobody cared.", ("Nobody noticed", "nobody cared")),
    ],
)  # fmt: skip
def test_a_foreign_sentence_is_reported(sentence, parts):
    readable = "Tomas Rell (born 3 May 1930) is a botanist."
    for text in (f"{readable} {sentence}", f"{sentence} {readable}"):
        reading = parse_passage_facts("Tomas Rell", text)
        assert reading.unread == parts
        assert FactStatement(None, rel.BIRTH_DATE, "1930-05-03") in reading.statements


def test_foreign_sentences_anywhere_in_a_made_passage_are_reported(items):
    strange = "Pigs have been seen to fly"
    for item in items[::10]:
        passage = item.instance.evidence[0]
        before = parse_passage_facts(passage.title, passage.text)
        sentences = passage.text.removesuffix(".").split(". ")
        for number in range(len(sentences) + 1):
            text = ". ".join([*sentences[:number], strange, *sentences[number:]]) + "."
            reading = parse_passage_facts(passage.title, text)
            assert reading.unread == (strange,)
            assert reading.statements == before.statements


def test_an_edited_passage_counts_as_it_stands(items):
    changed = 0
    for item in items:
        for entity, passage in zip(item.entities, item.instance.evidence, strict=True):
            for statement in entity.statements:
                if statement.relation.kind is ValueKind.YEAR and passage.text.count(statement.value) == 1:
                    other = str(int(statement.value) - 1)
                    reading = parse_passage_facts(passage.title, passage.text.replace(statement.value, other))
                    unchanged = set(entity.statements) - {statement}
                    edited = FactStatement(None, statement.relation, other, statement.era)
                    assert set(reading.statements) == unchanged | {edited}
                    changed += 1
    assert changed > 200


def test_a_name_changed_everywhere_changes_the_reading():
    text = "Paper Lighthouse is a 1971 drama film directed by Tomas Rell. The film was directed by Tomas Rell."
    before = parse_passage_facts("Paper Lighthouse", text)
    after = parse_passage_facts("Paper Lighthouse", text.replace("Tomas Rell", "Petra Lind"))
    assert [s.value for s in before.statements] == ["1971", "Tomas Rell"]
    assert [s.value for s in after.statements] == ["1971", "Petra Lind"]
    half = parse_passage_facts("Paper Lighthouse", text.replace("Tomas Rell", "Petra Lind", 1))
    assert [s.value for s in half.statements] == ["1971", "Petra Lind", "Tomas Rell"]


@pytest.mark.parametrize(
    ("sentence", "statement"),
    [
        ("She was born in Halmere.", FactStatement(None, rel.BIRTH_PLACE, "Halmere")),
        ("Lind was born in Halmere.", FactStatement(None, rel.BIRTH_PLACE, "Halmere")),
        ("Petra Lind was born in Halmere.", FactStatement(None, rel.BIRTH_PLACE, "Halmere")),
        ("Ines Varga was born in Halmere.", FactStatement("Ines Varga", rel.BIRTH_PLACE, "Halmere")),
        ("She directed Paper Lighthouse.", FactStatement("Paper Lighthouse", rel.DIRECTOR, "Petra Lind")),
        (
            "The film Paper Lighthouse was directed by she.",
            FactStatement("Paper Lighthouse", rel.DIRECTOR, "Petra Lind"),
        ),
    ],
)
def test_whom_a_sentence_is_about(sentence, statement):
    assert parse_passage_facts("Petra Lind (botanist)", sentence).statements == (statement,)


def test_a_thing_may_be_called_by_its_kind():
    reading = parse_passage_facts("Halmere", "The city has 8,100 inhabitants. The country of Halmere is fine.")
    assert reading.statements == (FactStatement(None, rel.POPULATION, "8100"),)
    assert reading.unread == ("The country of Halmere is fine",)


def test_equal_seeds_give_equal_words_around_a_changed_value():
    entity = furnished(rel.CITY, 5)
    before = write_entity_passage(entity, 0, seed="same", words=80).text
    assert before == write_entity_passage(entity, 0, seed="same", words=80).text
    old = entity.value(rel.POPULATION)
    assert old is not None
    new = str(int(old) + 1)
    entity.statements = [
        FactStatement(None, s.relation, new, s.era) if (s.relation, s.era) == (rel.POPULATION, None) else s
        for s in entity.statements
    ]
    after = write_entity_passage(entity, 0, seed="same", words=80).text
    assert after == before.replace(f"{int(old):,}", f"{int(new):,}")
    assert after != before


def test_a_passage_is_about_as_long_as_it_was_to_be():
    lengths = [
        len(write_entity_passage(furnished(rel.PERSON, seed), 0, seed=str(seed), words=90).text.split())
        for seed in range(100)
    ]
    assert 80 < sum(lengths) / 100 < 105


def test_an_empty_passage_says_nothing():
    reading = parse_passage_facts("Halmere", "")
    assert (reading.kind, reading.occupation, reading.statements, reading.unread) == (None, None, (), ())


def test_every_order_is_of_something_that_can_be_stated():
    assert all(relation in RELATIONS for relation in COMPARISON_WORDS)


def test_a_passage_without_title_and_opening_has_no_subject():
    assert parse_passage_facts("", "It rained all day.").name == ""
