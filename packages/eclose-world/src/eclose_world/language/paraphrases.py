"""Paraphrases that small models write and the world's own writer does not, turned into wordings of the grammar.

Only steps that the grammar cannot read come here. A rule changes words, never content; what no rule turns into a
sentence of the grammar stays unread. Texts of the world itself never depend on these rules.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from eclose_world.language.names import AWARD_NOUNS
from eclose_world.language.relations import ROLE_NOUNS, TYPE_WORDS
from eclose_world.language.values import NAME, NAME_WORD

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES = "|".join((*(word for words in TYPE_WORDS.values() for word in words), "one"))
_ROLES = "|".join(ROLE_NOUNS.values())
_PARTICIPLES = (
    "written|directed|produced|published|composed|recorded|performed|founded|scripted|released|established|chartered|"
    "registered"
)

OPENERS = re.compile(
    r"^(?:(?:In|According to) (?:the )?passages?(?: \d+)?, |"
    r"(?:The )?[Pp]assages?(?: \d+)? (?:says?|states?|mentions?) that |"
    r"It is (?:said|mentioned|known|given|clear) that |(?:First|Then|Now|Finally|In conclusion|Hence|So), |"
    r"(?:Therefore|Thus|Then|Finally) )"
)
"""First words of a step that add nothing to its claim."""

# Rules on words apply anywhere in a step. Each rule sees the result of those before it.
_WORD_RULES = (
    (r"[\"“”]", ""),
    (r"\bthe city of (?=[A-Z])", "the city "),
    # The article belongs to the names of awards: "received the Holm Prize".
    (rf"\bthe (?=[A-Z][\w'’-]* (?:{'|'.join(AWARD_NOUNS)})\b)", "The "),
    (rf"\bis ({_PARTICIPLES})(?= (?:by|in)\b)", r"was \1"),
    (r"\b(?:was|is) sung by\b", "was recorded by"),
    # Before "is given to" becomes a sentence of its own.
    (
        r"\bthe city (?:where|of) the awards? (?:(?:is|was|are) )?(?:given to|of|received by) (.+?)"
        r"(?: (?:is|was) presented)?(?= is\b| was\b|$)",
        r"the city where the award received by \1 is presented",
    ),
    (r"\b(?:was|is) (?:awarded|given) to\b", "was given to"),
    (r"\bis a (citizen|national) of\b", r"was a \1 of"),
    (r"\b(?:is|was) a professor (?:of|at)\b", "taught at"),
    (r"\bis a (country of citizenship|place of death|birthplace) (?:of|for)\b", r"is the \1 of"),
    (r"\bis a (place where|country of which)\b", r"is the \1"),
    (r"\b(is|was) the river (?=[A-Z])", r"\1 "),
    (r"\bthe director behind\b", "the filmmaker behind"),
    (r"\bwas presented in\b", "is presented in"),
    (r"\b(?:(?:is|was) dated(?: from)?|dates back to)(?= \d{4}$)", "dates from"),
    (r"\bthe (?:documentary|drama|comedy) (?=[A-Z])", "the film "),
    (rf"\b(on|through) the ({NAME_WORD}) River\b", r"\1 the river \2"),
    (r"\bis (?:located |situated )?on the river\b", "stands on the river"),
    (r"\bis (?:located |situated )?in the (county|township) of\b", r"lies in the \1 of"),
    (r"\b(was born|died) earlier than\b", r"\1 before"),
    (r"\b(was born|died) later than\b", r"\1 after"),
)
# Rules on noun phrases; the grammar has one or two wordings of each.
_PHRASE_RULES = (
    # "the university where X graduated from is Y"
    (
        r"\bthe (?:university|school|college|place) (?:where|that|(?:from|of|at) which) (.+?) "
        r"(?:graduated|studied|was educated)(?: from| at)?(?= is\b| was\b|$)",
        r"the university where \1 studied",
    ),
    (r"\bthe (?:place|city|town) (?:where|in which) (.+?) (?:died|passed away)\b", r"the city where \1 died"),
    (r"\bthe (?:place|city|town) (?:where|in which) (.+?) was born\b", r"the city where \1 was born"),
    # Places and dates by other nouns.
    (r"\bthe death place of\b", "the place of death of"),
    (r"\bthe (?:birth place|place of birth) of\b", "the birthplace of"),
    (r"\bthe (?:date|day) of birth of\b", "the birth date of"),
    (r"\bthe (?:date|day) of death of\b", "the death date of"),
    (r"\bthe year in which (.+?) received its charter\b", r"the charter year of \1"),
    (r"\bthe (?:charter date|date of the charter|year of the charter) of\b", "the charter year of"),
    (r"\bthe (?:number of )?people (?:who live|living) in\b", "the population of"),
    (r"\bthe (?:wife|husband) of\b", "the spouse of"),
    (r"\bthe award of (?=the |[A-Z])", "the award received by "),
    (r"\bthe publisher of the (?:publication|first edition) of\b", "the publisher of"),
    (r"\bthe company that published the first edition of\b", "the company that published"),
    (r"\bthe (?:person|people) who published\b", "the publisher of"),
    # People by what they did.
    (r"\bthe (?:person|singer|artist|performer) who (?:sang|sings|performed|recorded) ", "the performer of "),
    (r"\bthe screenwriter who wrote (?:the screenplay of )?", "the screenwriter of "),
    (r"\bthe (?:director|filmmaker) who (?:directed|made) ", "the director of "),
    (r"\bthe (?:author|novelist|writer) who wrote ", "the author of "),
    (r"\bthe writer of (?=the (?:film|movie) )", "the screenwriter of "),
    (
        r"\bthe country (?:where|in which|that|of which) (.+?) was a (?:citizen|national)(?: of)?\b",
        r"the country of which \1 was a citizen",
    ),
    # Countries; a birthplace is a city, so its country is one relation further.
    (r"\bthe (?:citizenship|nationality) of\b", "the country of citizenship of"),
    (r"\bthe country (?:where|in which) (.+?) was born\b", r"the country of the birthplace of \1"),
    (rf"\bthe country of (?=the (?:{_ROLES}|person|artist|performer|writer)\b)", "the country of citizenship of "),
    (r"\bthe country of (?=the (?:publisher|production company|company)\b)", "the country of the seat of "),
    (r"\bthe country (?:where|in which) (.+?) (?:lies|is located)\b", r"the country in which \1 lies"),
    (r"\bthe country (?:where|in which) (.+?) is based\b", r"the country of the seat of \1"),
    (r"\bthe (?:location|head office|headquarters) of (?=the company )", "the seat of "),
    (r"\bthe year (?:in which|when) (.+?) was released\b", r"the release year of \1"),
    (
        r"\bthe year (?:in which|when) (?:the first edition of )?(.+?) was (?:first )?published\b",
        r"the publication year of \1",
    ),
    (r"\bthe year (?:in which|when) (.+?) was (?:founded|set up)\b", r"the founding year of \1"),
    (r"\bthe (?:award|prize) (?:that was )?(?:given|awarded) to\b", "the award given to"),
    (r"\bthe (?:award|prize) that (.+?) received\b", r"the award received by \1"),
)
# Rules on whole sentences come last, when words and phrases are those of the grammar.
_SENTENCE_RULES = (
    # "the company founded by X is Y", "Y is the company that was founded by X"
    (rf"^the (?:{_TYPES}) (?:that (?:was|is) )?({_PARTICIPLES}) (by|in) (.+?) (?:is|was) (.+)$", r"\4 was \1 \2 \3"),
    (rf"^(.+?) (?:is|was) the (?:{_TYPES}) (?:that (?:was|is) )?({_PARTICIPLES}) (by|in) (.+)$", r"\1 was \2 \3 \4"),
    (r"^the first translation of (.+) was published in (\d{4})$", r"the first translation of \1 dates from \2"),
    (r"^the first edition of (.+) was published by (.+)$", r"\1 was published by \2"),
    (r"^(?:the first edition of )?(.+) was (?:first )?published in (\d{4})$", r"\1 was first published in \2"),
    (
        r"^(?:the first edition of )?(.+) was published (before|after) (?:the first edition of )?(.+)$",
        r"\1 was first published \2 \3",
    ),
    (rf"^({NAME}) (?:sang|sings|performed) (.+)$", r"\1 recorded \2"),
    (rf"^({NAME}) (?:was awarded|won) ({NAME})$", r"\1 received \2"),
    (r"^the screenplay of (.+) was scripted by (.+)$", r"the screenplay of \1 was written by \2"),
    (r"^(the (?:film|movie) .+) was written by (.+)$", r"the screenplay of \1 was written by \2"),
    (r"^the (seat|location|birthplace|registered office) of (.+) is (?:located )?in (.+)$", r"the \1 of \2 is \3"),
    (r"^(the company .+) is located in (.+)$", r"\1 is based in \2"),
    (r"^(.+) and (.+) are both (?:based|located) in (.+)$", r"\1 is based in \3; \2 is based in \3"),
    (r"^(the population of .+ is [\d,]+) (?:inhabitants|people)$", r"\1"),
    (r"^(.+) has a population of ([\d,]+)$", r"the population of \1 is \2"),
    (r"^(.+) (?:is|has) (\d+) pages$", r"\1 has \2 pages"),
    (r"^the first edition of (.+ has \d+ pages)$", r"\1"),
    (rf"^the screenplay of (.+) is by ({NAME})$", r"the screenplay of \1 was written by \2"),
    (rf"^the screenplay of (.+) is ({NAME})['’]s screenplay$", r"the screenplay of \1 was written by \2"),
    (r"^the music of (.+) was composed by (.+)$", r"\1 was composed by \2"),
    (rf"^the song ({NAME}) was written by ({NAME})$", r"\1 was composed by \2"),
    (rf"^((?:the (?:film|movie) )?{NAME}) was made by ({NAME})$", r"\1 was directed by \2"),
    (rf"^({NAME}) is (a (?:\w+ ){{0,2}}film) (?:directed )?by ({NAME})$", r"\1 is \2; \1 was directed by \3"),
    (r"^(.+) was set up by (.+)$", r"\1 was founded by \2"),
    (r"^(the charter of .+) was (?:issued|chartered|set up) in (\d{4})$", r"\1 dates from \2"),
    (r"^the charter of (.+) is (\d.*)$", r"the charter year of \1 is \2"),
    (r"^the (?:head office|headquarters) of (.+) is (?:located )?in (.+)$", r"the head office of \1 is in \2"),
    (r"^the (?:head office|headquarters) of (.+) is (?!in )(.+)$", r"the seat of \1 is \2"),
    (rf"^(.+) is (?:located |situated )?in ({NAME})$", r"\1 is located in \2"),
    # Comparisons of values become comparisons of their holders.
    (r"^the population of (.+) is (?:less|smaller) than (?:that|the population) of (.+)$", r"\1 is smaller than \2"),
    (
        r"^the population of (.+) is (?:more|larger|greater) than (?:that|the population) of (.+)$",
        r"\1 is larger than \2",
    ),
    (r"^the birth date of (.+) is earlier than (?:that|the birth date) of (.+)$", r"\1 was born before \2"),
    (r"^the birth date of (.+) is later than (?:that|the birth date) of (.+)$", r"\1 was born after \2"),
    (r"^the death date of (.+) is earlier than (?:that|the death date) of (.+)$", r"\1 died before \2"),
    (r"^the death date of (.+) is later than (?:that|the death date) of (.+)$", r"\1 died after \2"),
    (rf"^(.+) is the (?:{_TYPES}) with (fewer|more) inhabitants( than .+)?$", r"\1 has \2 inhabitants\3"),
    (rf"^the (?:{_TYPES}) with (fewer|more) inhabitants is (.+)$", r"\2 has \1 inhabitants"),
    # "the years between X and Y are 1990 - 1950 = 40": a subtraction, and its result.
    (
        r"^the (?:number of )?(?:calendar )?years between (.+) (?:are|is) (\d+) - (\d+) = (\d+)(?: years)?$",
        r"\2 - \3 = \4; the number of years between \1 is \4",
    ),
    (
        r"^the (?:number of )?(?:calendar )?years between (.+) (?:are|is) (\d+)(?: years)?$",
        r"the number of years between \1 is \2",
    ),
    # "the company that was founded later is X", "X is the book that has the author who is older"
    (rf"^the (?:{_TYPES}) (?:that|which) (.+) is ({NAME})$", r"\2 \1"),
    (rf"^({NAME}) is the (?:{_TYPES}) (?:that|which) (.+)$", r"\1 \2"),
    # "the founder of X is older", "the movie X has the director who is older"
    (rf"^the ({_ROLES}) of (?:the (?:{_TYPES}) )?({NAME}) ((?:is|was|died) \w+(?: \w+)?)$", r"\2 has the \1 who \3"),
    (
        rf"^the (?:{_TYPES}) ({NAME}) ((?:has|is|was|came|employs|died|appeared) .*"
        r"(?:older|younger|first|later|earlier|last|larger|smaller|inhabitants|people|pages|company))$",
        r"\1 \2",
    ),
)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), words) for pattern, words in (*_WORD_RULES, *_PHRASE_RULES, *_SENTENCE_RULES))


def rewrite_paraphrase(core: str) -> Iterator[str]:
    """Yield a step without opener and citation as it stands, then after each rule that changes it.

    A text may hold several claims, separated by "; ".
    """
    text = core
    yield text
    for pattern, words in _compiled():
        rewritten = pattern.sub(words, text)
        if rewritten != text:
            text = rewritten
            yield text
