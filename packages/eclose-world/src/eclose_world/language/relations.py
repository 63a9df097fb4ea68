"""The relations of the world and every wording of each: in a passage, in a step, inside a phrase, as a question.

This table is the whole grammar. ``{s}`` is the subject of a fact, ``{o}`` its value, ``{x}`` a phrase for the subject.
A new line adds a paraphrase that is written and read wherever it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from eclose_world.language.values import ValueKind

# Entity types, as articles and questions name them.
PERSON, FILM, BOOK, SONG, COMPANY = "person", "film", "book", "song", "company"
CITY, COUNTRY, UNIVERSITY, AWARD, RIVER = "city", "country", "university", "award", "river"
COUNTY, TOWNSHIP = "county", "township"

TYPE_WORDS = {
    PERSON: ("person",),
    FILM: ("film", "movie"),
    BOOK: ("novel", "book"),
    SONG: ("song",),
    COMPANY: ("company",),
    CITY: ("city",),
    COUNTRY: ("country",),
    UNIVERSITY: ("university",),
    AWARD: ("award",),
}
"""Nouns for an entity of each type; the first is the usual one."""


@dataclass(frozen=True)
class Relation:
    """One kind of fact, with its wordings."""

    name: str
    subject: str
    kind: ValueKind
    object: str | None
    """The type of the value where it is a name, else None."""
    forms: tuple[str, ...]
    """Sentences, without their full stop."""
    phrases: tuple[str, ...]
    """Noun phrases for the value."""
    asks: tuple[str, ...]
    """Questions for the value."""
    role: str | None = None
    """The occupation of the person named by the value, which tells namesakes apart."""
    single: bool = True
    """Whether a subject has at most one value."""

    def __str__(self) -> str:
        return self.name


def _relation_to_name(name: str, subject: str, obj: str, **fields: object) -> Relation:
    return Relation(name, subject, ValueKind.NAME, obj, **fields)  # type: ignore[arg-type]


def _relation_to_value(name: str, subject: str, kind: ValueKind, **fields: object) -> Relation:
    return Relation(name, subject, kind, None, **fields)  # type: ignore[arg-type]


DIRECTOR = _relation_to_name(
    "director", FILM, PERSON, role="film director",
    forms=("{s} was directed by {o}", "{o} directed {s}", "{s} was made by the director {o}", "{o} was the director of {s}"),
    phrases=("the director of {x}", "the person who directed {x}", "the filmmaker behind {x}"),
    asks=("Who directed {x}?", "Who was the director of {x}?"),
)  # fmt: skip
SCREENWRITER = _relation_to_name(
    "screenwriter", FILM, PERSON, role="screenwriter",
    forms=("the screenplay of {s} was written by {o}", "{o} wrote the screenplay of {s}", "{s} was scripted by {o}"),
    phrases=("the screenwriter of {x}", "the person who wrote the screenplay of {x}"),
    asks=("Who wrote the screenplay of {x}?", "Who was the screenwriter of {x}?"),
)  # fmt: skip
STAR = _relation_to_name(
    "star", FILM, PERSON, role="actor", single=False,
    forms=("{o} appeared in {s}", "{s} features {o} in a leading part", "{o} played a leading part in {s}"),
    phrases=("the actor who appeared in {x}",),
    asks=("Which actor appeared in {x}?",),
)  # fmt: skip
STUDIO = _relation_to_name(
    "studio", FILM, COMPANY,
    forms=("{s} was produced by {o}", "{o} produced {s}", "the production company of {s} was {o}"),
    phrases=("the production company of {x}", "the company that produced {x}"),
    asks=("Which company produced {x}?", "What was the production company of {x}?"),
)  # fmt: skip
RELEASED = _relation_to_value(
    "released", FILM, ValueKind.YEAR,
    forms=("{s} was released in {o}", "{s} came out in {o}", "{s} reached cinemas in {o}"),
    phrases=("the release year of {x}", "the year in which {x} came out"),
    asks=("In which year was {x} released?", "When did {x} come out?"),
)  # fmt: skip
RUNTIME = _relation_to_value(
    "runtime", FILM, ValueKind.MINUTES,
    forms=("{s} runs for {o}", "{s} has a running time of {o}", "the running time of {s} is {o}"),
    phrases=("the running time of {x}",),
    asks=("What is the running time of {x}?", "How long is {x}?"),
)  # fmt: skip
AUTHOR = _relation_to_name(
    "author", BOOK, PERSON, role="novelist",
    forms=("{s} was written by {o}", "{o} wrote {s}", "{o} is the author of {s}", "{s} is the work of {o}"),
    phrases=("the author of {x}", "the person who wrote {x}", "the writer of {x}"),
    asks=("Who wrote {x}?", "Who is the author of {x}?"),
)  # fmt: skip
PUBLISHER = _relation_to_name(
    "publisher", BOOK, COMPANY,
    forms=("{s} was published by {o}", "{o} published {s}", "the publisher of {s} was {o}"),
    phrases=("the publisher of {x}", "the company that published {x}"),
    asks=("Which company published {x}?", "What was the publisher of {x}?"),
)  # fmt: skip
PUBLISHED = _relation_to_value(
    "published", BOOK, ValueKind.YEAR,
    forms=("{s} first appeared in {o}", "{s} was first published in {o}", "the first edition of {s} dates from {o}"),
    phrases=("the publication year of {x}", "the year in which {x} first appeared"),
    asks=("In which year was {x} first published?", "When did {x} first appear?"),
)  # fmt: skip
PAGES = _relation_to_value(
    "pages", BOOK, ValueKind.NUMBER,
    forms=("{s} has {o} pages", "the first edition of {s} runs to {o} pages"),
    phrases=("the number of pages of {x}",),
    asks=("How many pages does {x} have?",),
)  # fmt: skip
PERFORMER = _relation_to_name(
    "performer", SONG, PERSON, role="singer",
    forms=("{s} was performed by {o}", "{s} was recorded by {o}", "{o} recorded {s}", "{o} is the performer of {s}"),
    phrases=("the performer of {x}", "the singer of {x}", "the artist who recorded {x}"),
    asks=("Who recorded {x}?", "Who is the performer of {x}?"),
)  # fmt: skip
SONGWRITER = _relation_to_name(
    "songwriter", SONG, PERSON, role="songwriter",
    forms=("{s} was composed by {o}", "{o} composed {s}", "the music of {s} is by {o}"),
    phrases=("the composer of {x}", "the person who composed {x}"),
    asks=("Who composed {x}?", "Who is the composer of {x}?"),
)  # fmt: skip
ISSUED = _relation_to_value(
    "issued", SONG, ValueKind.YEAR,
    forms=("{s} was issued as a single in {o}", "the single {s} was issued in {o}"),
    phrases=("the year in which the single {x} was issued",),
    asks=("In which year was {x} issued as a single?",),
)  # fmt: skip
BIRTH_DATE = _relation_to_value(
    "birth date", PERSON, ValueKind.DATE,
    forms=("{s} was born on {o}", "the birth date of {s} is {o}", "{s} came into the world on {o}"),
    phrases=("the birth date of {x}", "the day on which {x} was born"),
    asks=("When was {x} born?", "What is the birth date of {x}?"),
)  # fmt: skip
BIRTH_PLACE = _relation_to_name(
    "birth place", PERSON, CITY,
    forms=("{s} was born in {o}", "{s} was a native of {o}", "the birthplace of {s} is {o}"),
    phrases=("the birthplace of {x}", "the city where {x} was born"),
    asks=("Where was {x} born?", "In which city was {x} born?"),
)  # fmt: skip
DEATH_DATE = _relation_to_value(
    "death date", PERSON, ValueKind.DATE,
    forms=("{s} died on {o}", "{s} passed away on {o}", "the death date of {s} is {o}"),
    phrases=("the death date of {x}", "the day on which {x} died"),
    asks=("When did {x} die?", "On which day did {x} pass away?"),
)  # fmt: skip
DEATH_PLACE = _relation_to_name(
    "death place", PERSON, CITY,
    forms=("{s} died in {o}", "{s} passed away in {o}", "the place of death of {s} is {o}"),
    phrases=("the place of death of {x}", "the city where {x} died"),
    asks=("Where did {x} die?", "In which city did {x} pass away?"),
)  # fmt: skip
NATIONALITY = _relation_to_name(
    "nationality", PERSON, COUNTRY,
    forms=("{s} was a citizen of {o}", "{s} held the citizenship of {o}", "{s} was a national of {o}"),
    phrases=("the country of citizenship of {x}", "the country of which {x} was a citizen"),
    asks=("What is the country of citizenship of {x}?", "Which country was {x} a citizen of?"),
)  # fmt: skip
FATHER = _relation_to_name(
    "father", PERSON, PERSON,
    forms=("the father of {s} was {o}", "{o} was the father of {s}"),
    phrases=("the father of {x}",),
    asks=("Who is the father of {x}?", "Who was the father of {x}?"),
)  # fmt: skip
MOTHER = _relation_to_name(
    "mother", PERSON, PERSON,
    forms=("the mother of {s} was {o}", "{o} was the mother of {s}"),
    phrases=("the mother of {x}",),
    asks=("Who is the mother of {x}?", "Who was the mother of {x}?"),
)  # fmt: skip
SPOUSE = _relation_to_name(
    "spouse", PERSON, PERSON,
    forms=("{s} was married to {o}", "the spouse of {s} was {o}", "{s} married {o}"),
    phrases=("the spouse of {x}", "the person to whom {x} was married"),
    asks=("Who was the spouse of {x}?", "Whom did {x} marry?"),
)  # fmt: skip
EDUCATED = _relation_to_name(
    "education", PERSON, UNIVERSITY,
    forms=("{s} studied at {o}", "{s} was educated at {o}", "{s} graduated from {o}"),
    phrases=("the university of {x}", "the university where {x} studied"),
    asks=("Where did {x} study?", "Which university did {x} graduate from?"),
)  # fmt: skip
PRIZE = _relation_to_name(
    "prize", PERSON, AWARD,
    forms=("{s} received {o}", "{s} was honoured with {o}", "{o} was given to {s}"),
    phrases=("the award received by {x}", "the award given to {x}"),
    asks=("Which award did {x} receive?", "What award was given to {x}?"),
)  # fmt: skip
ALIAS = _relation_to_name(
    "alias", PERSON, PERSON,
    forms=("{s} is also known as {o}", "{o} is another name of {s}", "{s} worked under the name {o}"),
    phrases=("the other name of {x}",),
    asks=("Under which other name is {x} known?",),
)  # fmt: skip
FOUNDER = _relation_to_name(
    "founder", COMPANY, PERSON, role="entrepreneur",
    forms=("{s} was founded by {o}", "{o} founded {s}", "{o} is the founder of {s}", "{o} set up {s}"),
    phrases=("the founder of {x}", "the person who founded {x}"),
    asks=("Who founded {x}?", "Who is the founder of {x}?"),
)  # fmt: skip
HEADQUARTERS = _relation_to_name(
    "headquarters", COMPANY, CITY,
    forms=("{s} is based in {o}", "{s} has its head office in {o}", "the head office of {s} is in {o}"),
    phrases=("the seat of {x}", "the city where {x} is based"),
    asks=("Where is {x} based?", "In which city is {x} based?"),
)  # fmt: skip
FOUNDED = _relation_to_value(
    "founded", COMPANY, ValueKind.YEAR,
    forms=("{s} was founded in {o}", "{s} was set up in {o}", "{s} has existed since {o}"),
    phrases=("the founding year of {x}",),
    asks=("In which year was {x} founded?", "When was {x} set up?"),
)  # fmt: skip
EMPLOYEES = _relation_to_value(
    "employees", COMPANY, ValueKind.NUMBER,
    forms=("{s} employs {o} people", "{s} has {o} employees"),
    phrases=("the number of employees of {x}",),
    asks=("How many people does {x} employ?", "How many employees does {x} have?"),
)  # fmt: skip
LIES_IN = _relation_to_name(
    "country", CITY, COUNTRY,
    forms=("{s} lies in {o}", "{s} is a city of {o}", "{s} belongs to {o}"),
    phrases=("the country of {x}", "the country in which {x} lies"),
    asks=("In which country does {x} lie?", "Which country does {x} belong to?"),
)  # fmt: skip
POPULATION = _relation_to_value(
    "population", CITY, ValueKind.NUMBER,
    forms=("{s} has {o} inhabitants", "the population of {s} is {o}", "{o} people live in {s}"),
    phrases=("the population of {x}", "the number of inhabitants of {x}"),
    asks=("What is the population of {x}?", "How many people live in {x}?"),
)  # fmt: skip
ON_RIVER = _relation_to_name(
    "river", CITY, RIVER,
    forms=("{s} stands on the river {o}", "the river {o} flows through {s}"),
    phrases=("the river of {x}", "the river that flows through {x}"),
    asks=("On which river does {x} stand?", "Which river flows through {x}?"),
)  # fmt: skip
CAPITAL = _relation_to_name(
    "capital", COUNTRY, CITY,
    forms=("the capital of {s} is {o}", "{o} is the capital of {s}", "{s} is governed from {o}"),
    phrases=("the capital of {x}",),
    asks=("What is the capital of {x}?", "Which city is the capital of {x}?"),
)  # fmt: skip
SEATED = _relation_to_name(
    "location", UNIVERSITY, CITY,
    forms=("{s} is located in {o}", "the campus of {s} is in {o}", "{s} can be found in {o}"),
    phrases=("the location of {x}", "the city where {x} can be found"),
    asks=("Where is {x} located?", "In which city can {x} be found?"),
)  # fmt: skip
ESTABLISHED = _relation_to_value(
    "established", UNIVERSITY, ValueKind.YEAR,
    forms=("{s} was established in {o}", "{s} opened its doors in {o}"),
    phrases=("the year in which {x} was established",),
    asks=("In which year was {x} established?", "When did {x} open its doors?"),
)  # fmt: skip
PRESENTED = _relation_to_name(
    "presented", AWARD, CITY,
    forms=("{s} is presented in {o}", "the ceremony of {s} takes place in {o}"),
    phrases=("the city where {x} is presented",),
    asks=("In which city is {x} presented?",),
)  # fmt: skip

# Relations close in meaning to one above. Only the confusable profiles state them.
CHARTERED = _relation_to_value(
    "chartered", COMPANY, ValueKind.YEAR,
    forms=("{s} was chartered in {o}", "{s} received its charter in {o}", "the charter of {s} dates from {o}"),
    phrases=("the year in which {x} was chartered", "the charter year of {x}"),
    asks=("In which year was {x} chartered?", "When did {x} receive its charter?"),
)  # fmt: skip
REGISTERED = _relation_to_name(
    "registered", COMPANY, CITY,
    forms=("{s} is registered in {o}", "{s} has its registered office in {o}", "the registered office of {s} is in {o}"),
    phrases=("the registered office of {x}", "the city where {x} is registered"),
    asks=("Where is {x} registered?", "In which city is {x} registered?"),
)  # fmt: skip
ACCREDITED = _relation_to_value(
    "accredited", UNIVERSITY, ValueKind.YEAR,
    forms=("{s} was accredited in {o}", "{s} gained the right to award degrees in {o}"),
    phrases=("the year in which {x} was accredited",),
    asks=("In which year was {x} accredited?", "When did {x} gain the right to award degrees?"),
)  # fmt: skip
AIRED = _relation_to_value(
    "aired", FILM, ValueKind.YEAR,
    forms=("{s} was first aired in {o}", "{s} reached television in {o}", "{s} was first broadcast in {o}"),
    phrases=("the year in which {x} was first aired", "the broadcast year of {x}"),
    asks=("In which year was {x} first aired?", "When did {x} reach television?"),
)  # fmt: skip
TRANSLATED = _relation_to_value(
    "translated", BOOK, ValueKind.YEAR,
    forms=("{s} was first translated in {o}", "the first translation of {s} dates from {o}"),
    phrases=("the translation year of {x}", "the year in which {x} was first translated"),
    asks=("In which year was {x} first translated?", "When was {x} first translated?"),
)  # fmt: skip
TAUGHT = _relation_to_name(
    "teaching", PERSON, UNIVERSITY,
    forms=("{s} taught at {o}", "{s} lectured at {o}", "{s} held a chair at {o}"),
    phrases=("the university where {x} taught",),
    asks=("Where did {x} teach?", "Which university did {x} teach at?"),
)  # fmt: skip
IN_COUNTY = _relation_to_name(
    "county", CITY, COUNTY,
    forms=("{s} lies in the county of {o}", "{s} belongs to the county of {o}", "the county of {s} is {o}"),
    phrases=("the county of {x}", "the county in which {x} lies"),
    asks=("In which county does {x} lie?", "Which county does {x} belong to?"),
)  # fmt: skip
IN_TOWNSHIP = _relation_to_name(
    "township", CITY, TOWNSHIP,
    forms=("{s} lies in the township of {o}", "{s} belongs to the township of {o}", "the township of {s} is {o}"),
    phrases=("the township of {x}", "the township in which {x} lies"),
    asks=("In which township does {x} lie?", "Which township does {x} belong to?"),
)  # fmt: skip
CHILD = _relation_to_name(
    "child", PERSON, PERSON,
    forms=("the child of {s} was {o}", "{o} was the child of {s}", "{s} had a child named {o}"),
    phrases=("the child of {x}",),
    asks=("Who is the child of {x}?", "Who was the child of {x}?"),
)  # fmt: skip
RARE_RELATIONS = (CHARTERED, REGISTERED, ACCREDITED, AIRED, TRANSLATED, TAUGHT, IN_COUNTY, IN_TOWNSHIP, CHILD)
"""Relations that most profiles never state. Random choices leave them out unless a passage states one."""

# In the order of definition: random choices among relations depend on it.
RELATIONS: tuple[Relation, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Relation))
DEED_VERBS: dict[Relation, str] = {
    DIRECTOR: "directed",
    SCREENWRITER: "wrote the screenplay of",
    STAR: "appeared in",
    AUTHOR: "wrote",
    PERFORMER: "recorded",
    SONGWRITER: "composed",
    FOUNDER: "founded",
}
"""Verbs for a person's part in a work, for questions about the person who did two things."""

ROLE_NOUNS: dict[Relation, str] = {
    DIRECTOR: "director",
    SCREENWRITER: "screenwriter",
    AUTHOR: "author",
    PERFORMER: "singer",
    SONGWRITER: "composer",
    FOUNDER: "founder",
}
"""Nouns for a person's part in a work, for comparisons of works by their people."""

COMPOUND_PHRASES: dict[str, tuple[Relation, Relation]] = {
    "the paternal grandfather of {x}": (FATHER, FATHER),
    "the paternal grandmother of {x}": (FATHER, MOTHER),
    "the maternal grandfather of {x}": (MOTHER, FATHER),
    "the maternal grandmother of {x}": (MOTHER, MOTHER),
    "the father-in-law of {x}": (SPOUSE, FATHER),
    "the mother-in-law of {x}": (SPOUSE, MOTHER),
    "the grandchild of {x}": (CHILD, CHILD),
}
"""Phrases for two relations at once, which the benchmarks call inference."""

_NEAR_PAIRS = (
    (BIRTH_DATE, DEATH_DATE),
    (BIRTH_PLACE, DEATH_PLACE),
    (EDUCATED, TAUGHT),
    (FOUNDED, CHARTERED),
    (HEADQUARTERS, REGISTERED),
    (ESTABLISHED, ACCREDITED),
    (RELEASED, AIRED),
    (PUBLISHED, TRANSLATED),
    (IN_COUNTY, IN_TOWNSHIP),
    (FATHER, MOTHER),
)
NEAR_RELATIONS: dict[Relation, Relation] = {
    relation: other for pair in _NEAR_PAIRS for relation, other in (pair, pair[::-1])
}
"""The relation that is easily taken for another: same subject, same type of value, close in meaning."""


@dataclass(frozen=True)
class ComparisonWords:
    """Wordings of a comparison of two values of one relation."""

    less: tuple[str, ...]
    """Between two subjects: the first has the smaller value."""
    more: tuple[str, ...]
    """Between two subjects: the first has the larger value."""
    least: tuple[str, ...]
    """Of one subject out of two: it has the smaller value."""
    most: tuple[str, ...]
    """Of one subject out of two: it has the larger value."""


COMPARISON_WORDS: dict[Relation, ComparisonWords] = {
    RELEASED: ComparisonWords(("was released before", "came out earlier than"), ("was released after", "came out later than"),
                    ("was released first", "came out earlier"), ("was released later", "came out last")),
    PUBLISHED: ComparisonWords(("was first published before", "appeared earlier than"), ("was first published after", "appeared later than"),
                     ("was published first", "appeared earlier"), ("was published later", "appeared last")),
    ISSUED: ComparisonWords(("was issued before",), ("was issued after",), ("was issued first",), ("was issued later",)),
    BIRTH_DATE: ComparisonWords(("was born before", "is older than"), ("was born after", "is younger than"),
                      ("was born first", "was born earlier", "is older"), ("was born later", "was born last", "is younger")),
    DEATH_DATE: ComparisonWords(("died before",), ("died after",), ("died first", "died earlier"), ("died later", "died last")),
    FOUNDED: ComparisonWords(("was founded before",), ("was founded after",), ("was founded first", "is the older company"),
                   ("was founded later", "is the younger company")),
    ESTABLISHED: ComparisonWords(("was established before",), ("was established after",), ("was established first",), ("was established later",)),
    POPULATION: ComparisonWords(("has fewer inhabitants than", "is smaller than"), ("has more inhabitants than", "is larger than"),
                      ("has fewer inhabitants", "is smaller"), ("has more inhabitants", "is larger")),
    EMPLOYEES: ComparisonWords(("employs fewer people than",), ("employs more people than",), ("employs fewer people",), ("employs more people",)),
    PAGES: ComparisonWords(("has fewer pages than",), ("has more pages than",), ("has fewer pages",), ("has more pages",)),
    RUNTIME: ComparisonWords(("is shorter than", "has a shorter running time than"), ("is longer than", "has a longer running time than"),
                   ("is the shorter one", "has the shorter running time"), ("is the longer one", "has the longer running time")),
    CHARTERED: ComparisonWords(("was chartered before",), ("was chartered after",), ("was chartered first",), ("was chartered later",)),
    ACCREDITED: ComparisonWords(("was accredited before",), ("was accredited after",), ("was accredited first",), ("was accredited later",)),
    AIRED: ComparisonWords(("was first aired before", "reached television earlier than"), ("was first aired after", "reached television later than"),
                 ("was aired first", "reached television earlier"), ("was aired later", "reached television last")),
    TRANSLATED: ComparisonWords(("was first translated before",), ("was first translated after",), ("was translated first",), ("was translated later",)),
}  # fmt: skip

AGREEMENT_FORMS: dict[Relation, tuple[tuple[str, str, str], ...]] = {
    BIRTH_PLACE: (("Were {x} and {y} born in the same city?", "{x} and {y} were born in the same city", "{x} and {y} were born in different cities"),),
    NATIONALITY: (("Were {x} and {y} citizens of the same country?", "{x} and {y} were citizens of the same country", "{x} and {y} were citizens of different countries"),),
    LIES_IN: (("Do {x} and {y} lie in the same country?", "{x} and {y} lie in the same country", "{x} and {y} lie in different countries"),),
    DIRECTOR: (("Were {x} and {y} directed by the same person?", "{x} and {y} were directed by the same person", "{x} and {y} were directed by different people"),),
    HEADQUARTERS: (("Are {x} and {y} based in the same city?", "{x} and {y} are based in the same city", "{x} and {y} are based in different cities"),),
    EDUCATED: (("Did {x} and {y} study at the same university?", "{x} and {y} studied at the same university", "{x} and {y} studied at different universities"),),
    TAUGHT: (("Did {x} and {y} teach at the same university?", "{x} and {y} taught at the same university", "{x} and {y} taught at different universities"),),
    REGISTERED: (("Are {x} and {y} registered in the same city?", "{x} and {y} are registered in the same city", "{x} and {y} are registered in different cities"),),
    IN_COUNTY: (("Do {x} and {y} lie in the same county?", "{x} and {y} lie in the same county", "{x} and {y} lie in different counties"),),
    IN_TOWNSHIP: (("Do {x} and {y} lie in the same township?", "{x} and {y} lie in the same township", "{x} and {y} lie in different townships"),),
}  # fmt: skip
"""For each relation: question, claim that both values agree, claim that they differ."""
