"""Steps in the words of small models mean what the grammar says in its own; what no rule covers stays unread."""

from dataclasses import replace

import pytest

from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, Trace
from eclose.world.language.claims import DescriptionClaim, PronounReferents
from eclose.world.language.steps import parse_step_claims
from eclose.world.oracle.judge import judge_by_oracle

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


@pytest.mark.parametrize(("text", "wording"), SAME)
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
    ],
)
def test_what_no_rule_covers_stays_unread(text):
    assert read(text) is None


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
