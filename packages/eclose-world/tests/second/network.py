"""Words into tokens, tokens through a transition network: the second checker's parser.

All patterns of a kind are merged into one network of words and slots. A walk through it reads left to right; a slot
for a description calls the network of descriptions again. Names are runs of capitalised words, so that no list of
names is needed, and only a walk that uses up every token counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Value: TypeAlias = str | tuple[int, ...]
"""A name, or a date, year, number or duration as comparable whole numbers."""

MONTHS = {
    name: number
    for number, name in enumerate(
        (
            *("January", "February", "March", "April", "May", "June", "July"),
            *("August", "September", "October", "November", "December"),
        ),
        start=1,
    )
}
_LEXEME = re.compile(
    rf"""(?P<dmy>(?P<d1>\d{{1,2}})\ (?P<m1>{"|".join(MONTHS)})\ (?P<y1>\d{{4}}))
    | (?P<mdy>(?P<m2>{"|".join(MONTHS)})\ (?P<d2>\d{{1,2}}),\ (?P<y2>\d{{4}}))
    | (?P<hours>(?P<h>\d+)\ hours?(?:\ and\ (?P<hm>\d+)\ minutes)?)
    | (?P<minutes>(?P<min>\d+)\ minutes)
    | (?P<number>\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+)
    | (?P<word>[^\W\d_](?:[\w-]|'(?!s\b))*|'s)
    | (?P<mark>[^\w\s])""",
    re.VERBOSE,
)
_SMALL = frozenset({"of", "the", "a", "for"})
PRONOUNS = frozenset({"he", "she", "it"})
_NOT_A_NAME = frozenset({"The", "A", "An", "He", "She", "It"})


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a mark or a value."""

    kind: str
    text: str
    value: tuple[int, ...] = ()

    @property
    def large(self) -> bool:
        """Whether it is a capitalised word."""
        return self.kind == "word" and self.text[0].isupper()


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text."""
    return [_token(match) for match in _LEXEME.finditer(text)]


def _token(found: re.Match[str]) -> Token:
    text = found[0]
    if found["dmy"]:
        return Token("DATE", text, (int(found["y1"]), MONTHS[found["m1"]], int(found["d1"])))
    if found["mdy"]:
        return Token("DATE", text, (int(found["y2"]), MONTHS[found["m2"]], int(found["d2"])))
    if found["hours"]:
        return Token("MINUTES", text, (60 * int(found["h"]) + int(found["hm"] or 0),))
    if found["minutes"]:
        return Token("MINUTES", text, (int(found["min"]),))
    if found["number"]:
        return Token("NUMBER", text, (int(text.replace(",", "")),))
    return Token("word", text)


@dataclass(frozen=True, slots=True)
class Both:
    """Whoever did two things: pairs of a relation and a work."""

    deeds: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Something described by where one starts and the relations that lead from there."""

    start: str | Both
    links: tuple[str, ...] = ()

    def then(self, *links: str) -> Chain:
        """The chain with more links."""
        return Chain(self.start, (*self.links, *links))


Action: TypeAlias = Callable[[dict[str, Any]], Any]


@dataclass
class Network:
    """A place in the network: the words and slots that lead on, and what is said if the text ends here."""

    words: dict[str, Network] = field(default_factory=dict)
    slots: dict[str, Network] = field(default_factory=dict)
    ends: list[tuple[tuple[str, ...], Action]] = field(default_factory=list)

    def add(self, pattern: str, slots: dict[str, str], action: Action) -> None:
        """Lay a pattern; ``slots`` says what may stand for each of its letters."""
        here, letters = self, []
        for word in pattern.split():
            if word in slots:
                letters.append(word)
                here = here.slots.setdefault(slots[word], Network())
            else:
                here = here.words.setdefault(word, Network())
        here.ends.append((tuple(letters), action))


class Parser:
    """Reads one list of tokens."""

    def __init__(self, tokens: list[Token], descriptions: Network) -> None:
        self.tokens = tokens
        self.descriptions = descriptions
        self._described: dict[int, list[tuple[int, Chain]]] = {}

    def whole(self, network: Network, start: int = 0) -> list[Any]:
        """Every distinct meaning of the tokens from a place to their end."""
        meanings = (meaning for end, meaning in self._walk(network, start, ()) if end == len(self.tokens))
        return [meaning for meaning in dict.fromkeys(meanings) if meaning is not None]

    def ends(self, network: Network) -> list[int]:
        """Where the beginnings that the network knows end."""
        return [end for end, _ in self._walk(network, 0, ())]

    def _walk(self, here: Network, at: int, seen: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        for letters, action in here.ends:
            yield at, action(dict(zip(letters, seen, strict=True)))
        if at == len(self.tokens):
            return
        if (onward := here.words.get(self._word(at))) is not None:
            yield from self._walk(onward, at + 1, seen)
        for slot, onward in here.slots.items():
            for end, value in self._fill(slot, at):
                yield from self._walk(onward, end, (*seen, value))

    def _word(self, at: int) -> str:
        """The word as patterns have it: without the capital a sentence begins with, and "a" for "an"."""
        text = self.tokens[at].text
        text = text.lower() if at == 0 else text
        return "a" if text == "an" else text

    def _fill(self, slot: str, at: int) -> Iterator[tuple[int, Any]]:
        token = self.tokens[at]
        if slot == "DESCRIPTION":
            yield from self._descriptions(at)
        elif slot == "NAME":
            yield from self._names(at)
            yield from self._pronoun(at)
        elif slot == "PROPER":
            yield from self._names(at)
        elif slot == "YEAR":
            if token.kind == "NUMBER" and re.fullmatch(r"\d{4}", token.text):
                yield at + 1, token.value
        elif slot == "PLAIN":
            if token.value:
                yield at + 1, (token.kind, token.value)
        elif token.kind == slot:
            yield at + 1, token.value

    def _descriptions(self, at: int) -> list[tuple[int, Chain]]:
        if at not in self._described:
            self._described[at] = [
                *((end, Chain(name)) for end, name in (*self._names(at), *self._pronoun(at))),
                *self._walk(self.descriptions, at, ()),
            ]
        return self._described[at]

    def _pronoun(self, at: int) -> Iterator[tuple[int, str]]:
        if (word := self.tokens[at].text.lower()) in PRONOUNS:
            yield at + 1, word

    def _names(self, at: int) -> Iterator[tuple[int, str]]:
        if not self.tokens[at].large or self.tokens[at].text in PRONOUNS:
            return
        words: list[str] = []
        for end in range(at, len(self.tokens)):
            token = self.tokens[end]
            if not token.large and token.text not in _SMALL:
                return
            words.append(token.text)
            if token.large and not (len(words) == 1 and token.text in _NOT_A_NAME):
                yield end + 1, " ".join(words)
