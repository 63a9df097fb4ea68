"""The second checker's own copy of the language, as a text table.

Written by hand from a reading of the world's sources; nothing here is imported from them. In a pattern ``S``, ``X``
and ``Y`` stand for a description of something, ``O`` for a value of the relation, ``N`` for a whole number.
"""

from __future__ import annotations

from dataclasses import dataclass

# name / whose / what kind of value / role that the value plays / "many" if a subject may have several
# then lines of sentences (:), of descriptions of the value (=), of questions (?).
_RELATIONS = """
director / film / person / film director
: S was directed by O | O directed S | S was made by the director O | O was the director of S
= the director of X | the person who directed X | the filmmaker behind X
? who directed X | who was the director of X
screenwriter / film / person / screenwriter
: the screenplay of S was written by O | O wrote the screenplay of S | S was scripted by O
= the screenwriter of X | the person who wrote the screenplay of X
? who wrote the screenplay of X | who was the screenwriter of X
star / film / person / actor / many
: O appeared in S | S features O in a leading part | O played a leading part in S
= the actor who appeared in X
? which actor appeared in X
studio / film / company
: S was produced by O | O produced S | the production company of S was O
= the production company of X | the company that produced X
? which company produced X | what was the production company of X
released / film / YEAR
: S was released in O | S came out in O | S reached cinemas in O
= the release year of X | the year in which X came out
? in which year was X released | when did X come out
runtime / film / MINUTES
: S runs for O | S has a running time of O | the running time of S is O
= the running time of X
? what is the running time of X | how long is X
author / book / person / novelist
: S was written by O | O wrote S | O is the author of S | S is the work of O
= the author of X | the person who wrote X | the writer of X
? who wrote X | who is the author of X
publisher / book / company
: S was published by O | O published S | the publisher of S was O
= the publisher of X | the company that published X
? which company published X | what was the publisher of X
published / book / YEAR
: S first appeared in O | S was first published in O | the first edition of S dates from O
= the publication year of X | the year in which X first appeared
? in which year was X first published | when did X first appear
pages / book / NUMBER
: S has O pages | the first edition of S runs to O pages
= the number of pages of X
? how many pages does X have
performer / song / person / singer
: S was performed by O | S was recorded by O | O recorded S | O is the performer of S
= the performer of X | the singer of X | the artist who recorded X
? who recorded X | who is the performer of X
songwriter / song / person / songwriter
: S was composed by O | O composed S | the music of S is by O
= the composer of X | the person who composed X
? who composed X | who is the composer of X
issued / song / YEAR
: S was issued as a single in O | the single S was issued in O
= the year in which the single X was issued
? in which year was X issued as a single
born on / person / DATE
: S was born on O | the birth date of S is O | S came into the world on O
= the birth date of X | the day on which X was born
? when was X born | what is the birth date of X
born in / person / city
: S was born in O | S was a native of O | the birthplace of S is O
= the birthplace of X | the city where X was born
? where was X born | in which city was X born
died on / person / DATE
: S died on O | S passed away on O | the death date of S is O
= the death date of X | the day on which X died
? when did X die | on which day did X pass away
died in / person / city
: S died in O | S passed away in O | the place of death of S is O
= the place of death of X | the city where X died
? where did X die | in which city did X pass away
citizen / person / country
: S was a citizen of O | S held the citizenship of O | S was a national of O
= the country of citizenship of X | the country of which X was a citizen
? what is the country of citizenship of X | which country was X a citizen of
father / person / person
: the father of S was O | O was the father of S
= the father of X
? who is the father of X | who was the father of X
mother / person / person
: the mother of S was O | O was the mother of S
= the mother of X
? who is the mother of X | who was the mother of X
spouse / person / person
: S was married to O | the spouse of S was O | S married O
= the spouse of X | the person to whom X was married
? who was the spouse of X | whom did X marry
studied / person / university
: S studied at O | S was educated at O | S graduated from O
= the university of X | the university where X studied
? where did X study | which university did X graduate from
prize / person / award
: S received O | S was honoured with O | O was given to S
= the award received by X | the award given to X
? which award did X receive | what award was given to X
alias / person / person
: S is also known as O | O is another name of S | S worked under the name O
= the other name of X
? under which other name is X known
founder / company / person / entrepreneur
: S was founded by O | O founded S | O is the founder of S | O set up S
= the founder of X | the person who founded X
? who founded X | who is the founder of X
seat / company / city
: S is based in O | S has its head office in O | the head office of S is in O
= the seat of X | the city where X is based
? where is X based | in which city is X based
founded / company / YEAR
: S was founded in O | S was set up in O | S has existed since O
= the founding year of X
? in which year was X founded | when was X set up
employees / company / NUMBER
: S employs O people | S has O employees
= the number of employees of X
? how many people does X employ | how many employees does X have
country / city / country
: S lies in O | S is a city of O | S belongs to O
= the country of X | the country in which X lies
? in which country does X lie | which country does X belong to
population / city / NUMBER
: S has O inhabitants | the population of S is O | O people live in S
= the population of X | the number of inhabitants of X
? what is the population of X | how many people live in X
river / city / river
: S stands on the river O | the river O flows through S
= the river of X | the river that flows through X
? on which river does X stand | which river flows through X
capital / country / city
: the capital of S is O | O is the capital of S | S is governed from O
= the capital of X
? what is the capital of X | which city is the capital of X
campus / university / city
: S is located in O | the campus of S is in O | S can be found in O
= the location of X | the city where X can be found
? where is X located | in which city can X be found
established / university / YEAR
: S was established in O | S opened its doors in O
= the year in which X was established
? in which year was X established | when did X open its doors
presented / award / city
: S is presented in O | the ceremony of S takes place in O
= the city where X is presented
? in which city is X presented
"""

PLAIN_KINDS = ("YEAR", "DATE", "NUMBER", "MINUTES")


@dataclass(frozen=True)
class Relation:
    """One kind of fact, with the patterns that tell it."""

    name: str
    subject: str
    value: str
    role: str | None
    many: bool
    sentences: tuple[str, ...]
    descriptions: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether the value is a date or number rather than a name."""
        return self.value in PLAIN_KINDS


def _relation(block: list[str]) -> Relation:
    head = [part.strip() for part in block[0].split("/")]
    name, subject, value, *rest = head
    sentences, descriptions, questions = (tuple(form.strip() for form in line[1:].split("|")) for line in block[1:])
    return Relation(name, subject, value, rest[0] if rest else None, "many" in rest, sentences, descriptions, questions)


def _relations() -> dict[str, Relation]:
    lines = _RELATIONS.strip().splitlines()
    relations = (_relation(lines[start : start + 4]) for start in range(0, len(lines), 4))
    return {relation.name: relation for relation in relations}


RELATIONS = _relations()
ALIAS = "alias"

KIND_OF_WORD = {
    "person": "person", "film": "film", "movie": "film", "novel": "book", "book": "book", "song": "song",
    "company": "company", "city": "city", "country": "country", "university": "university",
    "award": "award", "republic": "country", "kingdom": "country", "federation": "country",
}  # fmt: skip

IN_LAWS = {
    "the paternal grandfather of X": ("father", "father"),
    "the paternal grandmother of X": ("father", "mother"),
    "the maternal grandfather of X": ("mother", "father"),
    "the maternal grandmother of X": ("mother", "mother"),
    "the father-in-law of X": ("spouse", "father"),
    "the mother-in-law of X": ("spouse", "mother"),
}

DEEDS = {
    "directed": "director",
    "wrote the screenplay of": "screenwriter",
    "appeared in": "star",
    "wrote": "author",
    "recorded": "performer",
    "composed": "songwriter",
    "founded": "founder",
}
MAKERS = {
    "director": "director",
    "screenwriter": "screenwriter",
    "author": "author",
    "singer": "performer",
    "composer": "songwriter",
    "founder": "founder",
}

# attribute: less | ... / more | ... / least | ... / most | ...
_ORDERS = """
released: was released before | came out earlier than / was released after | came out later than
  / was released first | came out earlier / was released later | came out last
published: was first published before | appeared earlier than / was first published after | appeared later than
  / was published first | appeared earlier / was published later | appeared last
issued: was issued before / was issued after / was issued first / was issued later
born on: was born before | is older than / was born after | is younger than
  / was born first | was born earlier | is older / was born later | was born last | is younger
died on: died before / died after / died first | died earlier / died later | died last
founded: was founded before / was founded after
  / was founded first | is the older company / was founded later | is the younger company
established: was established before / was established after / was established first / was established later
population: has fewer inhabitants than | is smaller than / has more inhabitants than | is larger than
  / has fewer inhabitants | is smaller / has more inhabitants | is larger
employees: employs fewer people than / employs more people than / employs fewer people / employs more people
pages: has fewer pages than / has more pages than / has fewer pages / has more pages
runtime: is shorter than | has a shorter running time than / is longer than | has a longer running time than
  / is the shorter one | has the shorter running time / is the longer one | has the longer running time
"""


@dataclass(frozen=True)
class Order:
    """The words that put the values of an attribute in order."""

    less: list[str]
    more: list[str]
    least: list[str]
    most: list[str]


def _orders() -> dict[str, Order]:
    orders = {}
    for line in _ORDERS.replace("\n  ", " ").strip().splitlines():
        attribute, _, words = line.partition(":")
        orders[attribute] = Order(*([word.strip() for word in part.split("|")] for part in words.split("/")))
    return orders


ORDERS = _orders()

# relation: question / agreeing claim / differing claim
_ALIKE = """
born in: were X and Y born in the same city / X and Y were born in the same city / X and Y were born in different cities
citizen: were X and Y citizens of the same country / X and Y were citizens of the same country
  / X and Y were citizens of different countries
country: do X and Y lie in the same country / X and Y lie in the same country / X and Y lie in different countries
director: were X and Y directed by the same person / X and Y were directed by the same person
  / X and Y were directed by different people
seat: are X and Y based in the same city / X and Y are based in the same city / X and Y are based in different cities
studied: did X and Y study at the same university / X and Y studied at the same university
  / X and Y studied at different universities
"""
ALIKE = {
    relation: [part.strip() for part in words.split("/")]
    for relation, _, words in (line.partition(":") for line in _ALIKE.replace("\n  ", " ").strip().splitlines())
}

DATED = {
    "population": ("in N the population of S was O", "at the census of N S had O inhabitants"),
    "employees": ("in N S employed O people",),
    "seat": ("until N S was based in O", "before N the head office of S was in O"),
}

ABSENT = ("the passages do not state X", "none of the passages gives X", "there is no information about X")
APART = ("the number of years between X and Y is N", "the years that separate X from Y are N")
PLANS = (
    *("first , find X", "we need to identify X", "let us look for X", "the next thing to find is X"),
    *("the question is about X", "the question asks for X"),
)
TRANSITIONS = ("let us read the passages", "here is the reasoning", "now to the second part", "step by step")
OPENERS = (
    *("According to passage N ,", "Passage N says that", "The passages say that", "We know that", "It is stated that"),
    *("Next ,", "It appears that", "Also ,", "So", "Therefore ,", "It follows that", "This means that", "Hence"),
    "Thus ,",
)
ABSTENTIONS = ("not determined", "unknown", "cannot be determined", "insufficient evidence", "not enough information")
EMPTY_WORDS = ("the answer is", "it is", "it was", "this is")
"""What may stand before an answer and adds nothing."""
UNITS = ("year", "years", "people", "inhabitants", "pages", "employees")
