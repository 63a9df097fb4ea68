"""Steps in the words of small models mean what the grammar says in its own; what no rule covers stays unread."""

from dataclasses import replace

import pytest

from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from eclose_world.language.claims import DescriptionClaim, PronounReferents
from eclose_world.language.steps import parse_step_claims
from eclose_world.oracle.judge import judge_by_oracle
from tests.tables import each_row

SAME = [
    (
        "The passage says that Paper Lighthouse was directed by Ana Ruiz.",
        "Paper Lighthouse was directed by Ana Ruiz.",
    ),
    (
        "It is mentioned that Ana Ruiz died in Port Dale [3].",
        "Ana Ruiz died in Port Dale.",
    ),
    (
        "Thus Ana Ruiz died later than Tom Rell.",
        "Ana Ruiz died after Tom Rell.",
    ),
    (
        "The director of Paper Lighthouse was Ana Ruiz.",
        "The director of Paper Lighthouse is Ana Ruiz.",
    ),
    (
        "The movie Paper Lighthouse is directed by Ana Ruiz.",
        "The movie Paper Lighthouse was directed by Ana Ruiz.",
    ),
    (
        "The movie Paper Lighthouse was written by Ana Ruiz.",
        "The screenplay of the movie Paper Lighthouse was written by Ana Ruiz.",
    ),
    (
        "The screenplay of A Caravan of Witness is written by Ana Ruiz.",
        "The screenplay of A Caravan of Witness was written by Ana Ruiz.",
    ),
    (
        "The first edition of The Caravan of the Silver Letters was published in 1981.",
        "The Caravan of the Silver Letters was first published in 1981.",
    ),
    (
        "The first translation of Silent Clocks was published in 1992.",
        "The first translation of Silent Clocks dates from 1992.",
    ),
    (
        "The person who sang the song Salt Bridge is Ana Ruiz.",
        "The performer of the song Salt Bridge is Ana Ruiz.",
    ),
    (
        "Ana Ruiz sang the song Salt Bridge.",
        "Ana Ruiz recorded the song Salt Bridge.",
    ),
    (
        "The university where the author of Silent Clocks graduated from is Yarton College.",
        "The university where the author of Silent Clocks studied is Yarton College.",
    ),
    (
        "So the place where the screenwriter of Paper Lighthouse died is Port Dale.",
        "The city where the screenwriter of Paper Lighthouse died is Port Dale.",
    ),
    (
        "The company founded by Ana Ruiz is Orchard Motors.",
        "Orchard Motors was founded by Ana Ruiz.",
    ),
    (
        "Orchard Motors is the company that was founded by Ana Ruiz.",
        "Orchard Motors was founded by Ana Ruiz.",
    ),
    (
        "The company that was founded later is Orchard Motors.",
        "Orchard Motors was founded later.",
    ),
    (
        "Silent Clocks is the book that has the author who is older.",
        "Silent Clocks has the author who is older.",
    ),
    (
        "The founder of Orchard Motors is older.",
        "Orchard Motors has the founder who is older.",
    ),
    (
        "The person who founded Orchard Motors received the Holm Prize.",
        "The founder of Orchard Motors received The Holm Prize.",
    ),
    (
        "The population of the city of Port Dale is 129,658.",
        "The population of Port Dale is 129,658.",
    ),
    (
        "The population of Port Dale is less than that of Kelberg.",
        "Port Dale has fewer inhabitants than Kelberg.",
    ),
    (
        "The country where Ana Ruiz was born is Ildetia.",
        "The country of the birthplace of Ana Ruiz is Ildetia.",
    ),
    (
        "The company Orchard Motors is located in Port Dale.",
        "The company Orchard Motors is based in Port Dale.",
    ),
    (
        "Orchard Motors and Horizon Records are both based in Port Dale.",
        "Orchard Motors is based in Port Dale; Horizon Records is based in Port Dale.",
    ),
    (
        "Ana Ruiz died in Port Dale. Port Dale lies in Ildetia.",
        "Ana Ruiz died in Port Dale; Port Dale lies in Ildetia.",
    ),
    (
        "The screenplay of Paper Lighthouse is by Ana Ruiz [5].",
        "The screenplay of Paper Lighthouse was written by Ana Ruiz.",
    ),
    (
        "The screenplay of Paper Lighthouse is Ana Ruiz's screenplay.",
        "The screenplay of Paper Lighthouse was written by Ana Ruiz.",
    ),
    (
        "The song Salt Bridge was written by Ana Ruiz.",
        "The song Salt Bridge was composed by Ana Ruiz.",
    ),
    (
        "The music of Salt Bridge was composed by Ana Ruiz.",
        "Salt Bridge was composed by Ana Ruiz.",
    ),
    (
        "The film Paper Lighthouse was made by Ana Ruiz.",
        "The film Paper Lighthouse was directed by Ana Ruiz.",
    ),
    (
        "The place of death of the director behind the movie Paper Lighthouse is Port Dale.",
        "The place of death of the filmmaker behind the movie Paper Lighthouse is Port Dale.",
    ),
    (
        "Ana Ruiz was a professor of Yarton College.",
        "Ana Ruiz taught at Yarton College.",
    ),
    (
        "Ana Ruiz is a national of South Marovia.",
        "Ana Ruiz was a national of South Marovia.",
    ),
    (
        "South Marovia is a country of citizenship of the author of Silent Clocks.",
        "South Marovia is the country of citizenship of the author of Silent Clocks.",
    ),
    (
        "The country of the author of Silent Clocks is South Marovia.",
        "The country of citizenship of the author of Silent Clocks is South Marovia.",
    ),
    (
        "Port Dale is a place where the author of Silent Clocks died.",
        "Port Dale is the city where the author of Silent Clocks died.",
    ),
    (
        "The wife of Tom Rell is Ana Ruiz.",
        "The spouse of Tom Rell is Ana Ruiz.",
    ),
    (
        "The Holm Prize is awarded to Ana Ruiz.",
        "The Holm Prize was given to Ana Ruiz.",
    ),
    (
        "The city where the award is given to the author of Silent Clocks is Port Dale.",
        "The city where the award received by the author of Silent Clocks is presented is Port Dale.",
    ),
    (
        "So the city of the award given to the author of Silent Clocks is Port Dale.",
        "The city where the award received by the author of Silent Clocks is presented is Port Dale.",
    ),
    (
        "The Holm Prize was presented in Port Dale.",
        "The Holm Prize is presented in Port Dale.",
    ),
    (
        "The head office of Orchard Motors is Port Dale.",
        "The head office of Orchard Motors is in Port Dale.",
    ),
    (
        "Orchard Motors was set up by Ana Ruiz.",
        "Orchard Motors was founded by Ana Ruiz.",
    ),
    (
        "The year in which Orchard Motors was set up is 1972.",
        "The founding year of Orchard Motors is 1972.",
    ),
    (
        "The charter of Orchard Motors is dated from 1969.",
        "The charter of Orchard Motors dates from 1969.",
    ),
    (
        "The charter of Orchard Motors was issued in 1969.",
        "The charter of Orchard Motors dates from 1969.",
    ),
    (
        "The charter of the company that produced Paper Lighthouse is 1969.",
        "The charter year of the company that produced Paper Lighthouse is 1969.",
    ),
    (
        "The date of the charter of Orchard Motors is 1969.",
        "The charter year of Orchard Motors is 1969.",
    ),
    (
        "The year in which Orchard Motors received its charter is 1969.",
        "The charter year of Orchard Motors is 1969.",
    ),
    (
        "The publisher of the first edition of Silent Clocks is Orchard Motors.",
        "The publisher of Silent Clocks is Orchard Motors.",
    ),
    (
        "The first edition of Silent Clocks is 529 pages.",
        "Silent Clocks has 529 pages.",
    ),
    (
        "The country where the publisher of Silent Clocks is based is South Marovia.",
        "The country of the seat of the publisher of Silent Clocks is South Marovia.",
    ),
    (
        "The country where the seat of Orchard Motors lies is South Marovia.",
        "The country in which the seat of Orchard Motors lies is South Marovia.",
    ),
    (
        "The number of people who live in Port Dale is 129,658.",
        "The population of Port Dale is 129,658.",
    ),
    (
        "Port Dale has a population of 129,658.",
        "The population of Port Dale is 129,658.",
    ),
    (
        "Port Dale is located on the Croma River.",
        "Port Dale stands on the river Croma.",
    ),
    (
        "The river that flows through Port Dale is the river Croma.",
        "The river that flows through Port Dale is Croma.",
    ),
    (
        "Port Dale is located in the county of Holwick.",
        "Port Dale lies in the county of Holwick.",
    ),
    (
        "The university Yarton College is in Port Dale.",
        "The university Yarton College is located in Port Dale.",
    ),
]


def read(text):
    claims = parse_step_claims(text, PronounReferents())
    # A stated type, as in "the movie Paper Lighthouse", adds nothing to a claim.
    return None if claims is None else tuple(_drop_types(claim) for claim in claims)


def _drop_types(claim):
    for name in ("phrase", "first", "second"):
        if hasattr(getattr(claim, name, None), "kind"):
            claim = replace(claim, **{name: replace(getattr(claim, name), kind=None)})
    return claim


@each_row(SAME)
def test_a_paraphrase_means_what_the_grammar_says(text, wording):
    assert read(text) == read(wording)
    assert read(text)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is: Port Dale.",
        "The area of the city of Port Dale is 129,658 square kilometers.",
        # A former seat or population may be meant.
        "The head office of Orchard Motors was in Port Dale.",
        "The population of Port Dale was 129,658.",
        "The largest city is Port Dale.",
        "The writer of Silent Clocks was a novelist.",
        "Paper Lighthouse was filmed in Port Dale.",
        "The charter of Paper Lighthouse was issued by Orchard Motors.",
    ],
)
def test_what_no_rule_covers_stays_unread(text):
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("The head office of Port Dale is 860,263.", ["headquarters"], "860263"),
        ("The mother of the publisher of Silent Clocks is Ana Ruiz.", ["publisher", "mother"], "Ana Ruiz"),
        ("The population of the birthplace of Ana Ruiz is Port Dale.", ["birth place", "population"], "Port Dale"),
        ("Orchard Motors was set up in Port Dale.", ["founded"], "Port Dale"),
        ("The charter of Orchard Motors is 2 hours and 41 minutes.", ["chartered"], "161"),
    ],
)
def test_a_fact_between_wrong_types_is_read_as_it_stands(text, path, value):
    (claim,) = parse_step_claims(text, PronounReferents())
    assert ([str(relation) for relation in claim.phrase.path], claim.value) == (path, value)


def test_after_a_fact_between_wrong_types_a_pronoun_is_unread():
    discourse = PronounReferents()
    assert parse_step_claims("Orchard Motors was set up in Port Dale.", discourse)
    assert parse_step_claims("It belongs to South Marovia.", discourse) is None


def test_a_pronoun_is_not_the_value_of_its_own_claim():
    discourse = PronounReferents()
    stated = parse_step_claims("Port Dale stands on the river Croma.", discourse)
    assert parse_step_claims("It is situated on the river Croma.", discourse) == stated


def test_a_film_by_its_director_is_a_description_and_a_fact():
    description, director = read("Paper Lighthouse is a drama film directed by Ana Ruiz.")
    assert description == DescriptionClaim("Paper Lighthouse", "film", frozenset({"drama"}))
    assert (director,) == read("Paper Lighthouse was directed by Ana Ruiz.")


def test_an_opening_of_an_article_is_read_as_description_and_facts():
    description, released, director = read("Paper Lighthouse is a 1964 war film directed by Ana Ruiz.")
    assert description == DescriptionClaim("Paper Lighthouse", "film", frozenset({"war"}))
    assert (released, director) == (
        *read("Paper Lighthouse was released in 1964."),
        *read("Paper Lighthouse was directed by Ana Ruiz."),
    )


FILM = Passage(
    "0", "Paper Lighthouse", "Paper Lighthouse is a war film. The screenplay of the film was written by Ana Ruiz."
)
INSTANCE = Instance("i", "Who wrote the screenplay of the film Paper Lighthouse?", (FILM,), "Ana Ruiz")


@pytest.mark.parametrize(
    ("step", "sound"),
    [
        ("Paper Lighthouse is a war film.", True),
        ("The movie Paper Lighthouse is a war film.", True),
        ("Paper Lighthouse is a drama film.", False),
        ("Paper Lighthouse is a song.", False),
        # "was written by" of a film is its screenplay.
        ("Paper Lighthouse was written by Ana Ruiz.", True),
        ("Paper Lighthouse was written by Tom Rell.", False),
        ("Paper Lighthouse was directed by Ana Ruiz.", False),
    ],
)
def test_steps_in_other_words_are_judged_by_the_passages(step, sound):
    assert judge_by_oracle(INSTANCE, Response("r", "i", Trace.of(step), "Ana Ruiz")).locally_sound is sound


def test_another_wording_decides_the_whole_response():
    judgment = judge_by_oracle(
        INSTANCE, Response("r", "i", Trace.of("Paper Lighthouse is written by Ana Ruiz."), "Ana Ruiz")
    )
    assert (judgment.aligned, judgment.closed, judgment.complete, judgment.correct) == (True, True, True, True)


PLACES = (
    Passage("0", "Orchard Motors", "Orchard Motors is a shipping company based in Port Dale."),
    Passage("1", "Port Dale", "Port Dale is a coastal city in South Marovia. It belongs to the county of Holwick."),
    Passage("2", "Salt Bridge", "Salt Bridge is a song. Salt Bridge was composed by Ana Ruiz."),
)


@pytest.mark.parametrize(
    ("step", "sound"),
    [
        # "is in": the seat of a company, the country or the county of a city.
        ("Orchard Motors is in Port Dale.", True),
        ("Port Dale is in South Marovia.", True),
        ("The city of Port Dale is situated in Holwick.", True),
        ("Port Dale is in Ildetia.", False),
        ("Orchard Motors is in South Marovia.", False),
        ("Salt Bridge was written by Ana Ruiz.", True),
        ("Salt Bridge was written by Tom Rell.", False),
        # No passage can state these.
        ("The head office of Port Dale is Port Dale.", False),
        ("Orchard Motors was set up in Port Dale.", False),
    ],
)
def test_the_passages_say_which_relation_is_meant(step, sound):
    instance = Instance("i", "In which country does the seat of Orchard Motors lie?", PLACES, "South Marovia")
    judgment = judge_by_oracle(instance, Response("r", "i", Trace.of(step), "South Marovia"))
    assert judgment.locally_sound is sound
