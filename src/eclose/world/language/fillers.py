"""Filler sentences that no question needs, as an encyclopedia article has them.

Slots take words from small pools. ``is_filler_sentence`` recognises every sentence, so a reader of passages can skip it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from eclose.world.language.phrases import replace_an_by_a

if TYPE_CHECKING:
    from random import Random

POOLS: dict[str, tuple[str, ...]] = {
    "quality": ("careful", "unhurried", "spare", "generous", "playful", "severe", "restrained", "vivid", "uneven", "bold"),
    "theme": ("memory", "exile", "weather", "inheritance", "silence", "friendship", "labour", "faith", "debt", "childhood"),
    "place": ("the coast", "the north", "a disused mill", "a rented flat", "the old quarter", "a border village", "the hills"),
    "season": ("spring", "summer", "autumn", "winter"),
    "people": ("critics", "readers", "students", "collectors", "visitors", "historians", "local papers", "later admirers"),
    "craft": ("editing", "lighting", "dialogue", "pacing", "sound", "cover design", "phrasing", "costumes", "typography"),
    "event": ("a fire", "a flood", "a strike", "the war years", "a change of government", "a long dispute", "an earthquake"),
    "trade": ("timber", "wool", "salt", "glass", "fruit", "copper", "paper", "grain", "fish", "ceramics"),
    "building": ("town hall", "cathedral", "covered market", "theatre", "observatory", "harbour wall", "railway station"),
    "number": ("two", "three", "four", "five", "six", "seven", "a dozen", "several"),
    "habit": ("gardening", "rowing", "mountain walking", "chess", "bookbinding", "beekeeping", "photography", "sailing"),
    "language": ("French", "Portuguese", "Japanese", "Greek", "Polish", "Turkish", "Welsh", "Czech"),
    "thing": ("letters", "notebooks", "sketches", "recordings", "photographs", "contracts", "diaries", "drafts"),
}  # fmt: skip

WORKS = (
    "Reviewers singled out its {quality} {craft} and its treatment of {theme}",
    "It has been translated into {language} and {language}",
    "Much of the work on it was done in {place} over a single {season}",
    "Among {people} it is remembered mainly for its {craft}",
    "An early version was abandoned after {event}",
    "The response at first was mixed, but {people} have since come to value its {quality} tone",
    "A restored version was shown to {people} {number} decades later",
    "The title is a private joke about {theme} that nobody outside the circle understood",
    "Its {craft} became a model for a generation of {people}",
    "Scholars have compared its handling of {theme} with that of {number} contemporaries",
    "Rights to a sequel were sold and never used, partly because of {event}",
    "It is often taught in courses on {theme}, where {people} tend to disagree about the ending",
    "The original {thing} are kept in a private archive in {place}",
    "Sales were modest until a {season} in which {people} rediscovered it",
    "A planned exhibition about its making was cancelled after {event}",
)
PEOPLE = (
    "Friends described a {quality} manner and a lasting interest in {theme}",
    "In later life {habit} took up most of the {season} months",
    "Several of the surviving {thing} have been shown to {people}",
    "The collected {thing} were edited by {number} former students",
    "Interviews from that time return again and again to {theme}",
    "There is a small museum with {thing} and furniture in {place}",
    "A memoir about {theme} was begun in {place} and left unfinished",
    "Work was interrupted for {number} years by {event}",
    "Contemporaries praised a {quality} way with {craft}, though {people} were not always convinced",
    "The {thing} from the early years were lost in {event}",
    "Fluent in {language} and {language}, the young student first earned a living as a translator",
    "{number} biographies have appeared, none of which {people} consider complete",
    "A street and a school near {place} bear the name",
    "Colleagues recalled long evenings spent on {habit} and arguments about {theme}",
    "An illness contracted in {place} left a permanent mark on the later work",
)
PLACES = (
    "The {building} was rebuilt after {event} and is now visited by {people}",
    "For centuries the main trade was in {trade} and {trade}",
    "A festival devoted to {theme} takes place every {season}",
    "The {building} and the {building} are protected monuments",
    "Older houses are built of local stone, with steep roofs against the {season} storms",
    "The economy still depends on {trade}, although {people} bring in more each year",
    "Its dialect has words for {theme} that {people} have tried to record",
    "The archive holds {thing} going back {number} centuries",
    "After {event} many families moved away, and the {building} stood empty for {number} years",
    "The local team has won the {season} cup {number} times",
    "A tramway once linked the {building} with {place}",
    "Exports of {trade} made a few families rich and paid for the {building}",
)
BODIES = (
    "It began in a single room in {place} and grew quickly through the sale of {trade}",
    "A dispute over {theme} split the board for {number} years",
    "The house style is known among {people} for its {quality} {craft}",
    "Its archive of {thing} is open to {people} every {season}",
    "After {event} it nearly closed, and {number} members of staff bought shares to keep it going",
    "Meetings are still held in {language}, a habit that puzzles {people}",
    "A foundation for {theme} bears its name",
    "Its first building, next to the {building}, burned down and was never replaced",
    "Competitors copied its way with {craft} within {number} years",
    "During {event} it turned for a while to the making of {trade}",
    "A history in {number} volumes was written for an anniversary and read mainly by {people}",
    "The emblem shows a {quality} hand holding a sheaf of {trade}",
)
SCHOOLS = (
    "The library holds {number} rooms of {thing}, some of them never catalogued",
    "Teaching was interrupted for {number} terms by {event}",
    "Its courses on {theme} attract {people} from abroad every {season}",
    "The oldest wing once served as a {building}",
    "Students of {craft} put on a show of their own each {season}",
    "A chair for the study of {theme} was endowed by a family that had grown rich on {trade}",
    "Lectures were held in {language} until {event}",
    "The rowing club and the society for {habit} are older than most departments",
    "A quarrel about {theme} divided the staff for {number} years",
    "Its collection of {thing} is open to {people} by appointment",
    "The grounds border on {place} and are known for a {quality} avenue of limes",
    "Graduates are said to be {quality} in argument and careless about {craft}",
)
PRIZES = (
    "The jury of {number} is drawn by lot from former winners",
    "No winner was named in the year of {event}",
    "Entries in {language} have been accepted for {number} decades",
    "It comes with a medal and a year free of duties, spent as a rule in {place}",
    "The founder, a dealer in {trade}, asked that no work on {theme} be excluded",
    "Its shortlist is read closely by {people}",
    "The dinner that follows each {season} is better known than the speeches",
    "Twice it went to {number} people at once, against the wishes of {people}",
    "A book of the winners' {thing} appears every few years",
    "Winners are expected to give a talk on {theme} or on {craft}",
    "Early juries favoured {quality} work, and {people} complained",
    "The statutes were rewritten after {event}",
)
BY_KIND = {
    "film": WORKS, "book": WORKS, "song": WORKS, "person": PEOPLE, "city": PLACES, "country": PLACES,
    "company": BODIES, "university": SCHOOLS, "award": PRIZES,
}  # fmt: skip

_SLOT = re.compile(r"\{(\w+)\}")


def draw_filler_sentence(kind: str, rng: Random, used: set[str]) -> str | None:
    """Return an unused sentence without its full stop, None where all are used; ``used`` gets its template."""
    unused = [template for template in BY_KIND[kind] if template not in used]
    if not unused:
        return None
    template = rng.choice(unused)
    used.add(template)
    chosen: set[str] = set()

    # No word twice in a sentence: two slots may share a pool.
    def fill(slot: re.Match[str]) -> str:
        word = rng.choice([word for word in POOLS[slot[1]] if word not in chosen])
        chosen.add(word)
        return word

    return _SLOT.sub(fill, template)


@cache
def _pattern() -> re.Pattern[str]:
    alternatives = []
    # dict, not set: works share templates, and the order stays fixed.
    for template in {template: None for group in BY_KIND.values() for template in group}:
        parts = _SLOT.split(replace_an_by_a(template))
        alternatives.append(
            "".join(
                # Even parts are literal text, odd parts are slot names.
                re.escape(part) if index % 2 == 0 else "(?:" + "|".join(map(replace_an_by_a, POOLS[part])) + ")"
                for index, part in enumerate(parts)
            )
        )
    # Without case: a slot at the start of a sentence is capitalised.
    return re.compile("|".join(alternatives), re.IGNORECASE)


def is_filler_sentence(text: str) -> bool:
    """Return whether a sentence core with plain articles is a filler."""
    return _pattern().fullmatch(text) is not None
