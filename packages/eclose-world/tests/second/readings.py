"""The networks of the language and what a walk through them means: steps, questions, sentences of passages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, TypeAlias

from tests.second import tables
from tests.second.network import Both, Chain, Network, Parser, Token, Value, tokens_of
from tests.second.tables import ORDERS, RELATIONS

# What a step claims.


@dataclass(frozen=True, slots=True)
class Fact:
    """A chain leads to a value; or, denied, does not."""

    chain: Chain
    value: Value
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """The passages do not tell where a chain leads."""

    chain: Chain


@dataclass(frozen=True, slots=True)
class Sum:
    """An order or a difference of bare values, and whether it is right."""

    right: bool


@dataclass(frozen=True, slots=True)
class Versus:
    """Where one chain leads is less, or more, than where another does."""

    one: Chain
    two: Chain
    less: bool


@dataclass(frozen=True, slots=True)
class Best:
    """One thing, or its maker, has the least or the most of an attribute."""

    name: str
    links: tuple[str, ...]
    least: bool


@dataclass(frozen=True, slots=True)
class Alike:
    """Two chains lead to one value, or do not."""

    one: Chain
    two: Chain
    same: bool


@dataclass(frozen=True, slots=True)
class Apart:
    """So many years lie between two values."""

    one: Chain
    two: Chain
    years: int


IDLE = "idle"
Claim: TypeAlias = Fact | Absent | Sum | Versus | Best | Alike | Apart | str


@dataclass(frozen=True, slots=True)
class Goal:
    """What a question asks: ``value``, ``choice``, ``alike`` or ``years``, over one or two chains."""

    mode: str
    chains: tuple[Chain, ...]
    least: bool = False


def _slots(value: str = "PROPER") -> dict[str, str]:
    kind = value if value in tables.PLAIN_KINDS else "NAME"
    return {**dict.fromkeys("SXY", "DESCRIPTION"), "O": kind, "N": "NUMBER", "A": "PROPER", "B": "PROPER"}


# Descriptions.


@cache
def descriptions(*, bare: bool) -> Network:
    """Noun phrases; ``bare`` admits "the film" for whatever a passage is about."""
    network = Network()
    for relation in RELATIONS.values():
        for pattern in relation.descriptions:
            network.add(pattern, _slots(), _through((relation.name,)))
    for pattern, links in tables.IN_LAWS.items():
        network.add(pattern, _slots(), _through(links))
    for word in tables.KIND_OF_WORD:
        network.add(f"the {word} A", _slots(), lambda got: Chain(got["A"]))
        if bare:
            network.add(f"the {word}", _slots(), _always(Chain("it")))
    _add_deeds(network, "the person who", Chain)
    return network


def _always(meaning: object) -> Any:
    return lambda _: meaning


def _through(links: tuple[str, ...]) -> Any:
    return lambda got: got["X"].then(*links)


def _add_deeds(network: Network, head: str, wrap: Any) -> None:
    for verb, relation in tables.DEEDS.items():
        network.add(f"{head} {verb} both A and B", _slots(), _deeds(relation, relation, wrap))
        for other_verb, two in tables.DEEDS.items():
            if two != relation:
                network.add(f"{head} {verb} A and {other_verb} B", _slots(), _deeds(relation, two, wrap))


def _deeds(one: str, two: str, wrap: Any) -> Any:
    return lambda got: wrap(Both(tuple(sorted(((one, got["A"]), (two, got["B"]))))))


# Facts.


def _add_facts(network: Network, prefix: str = "", *, denied: bool = False) -> None:
    for relation in RELATIONS.values():
        for pattern in relation.sentences:
            network.add(prefix + pattern, _slots(relation.value), _fact(relation.name, denied=denied))


def _fact(name: str, *, denied: bool = False) -> Any:
    return lambda got: Fact(got["S"].then(name), got["O"], denied)


def _add_equations(network: Network, prefix: str = "", *, denied: bool = False) -> None:
    """A description is a value, and the other way round for names."""
    for kind in ("NAME", *tables.PLAIN_KINDS):
        slots = {**_slots(), "O": kind}
        network.add(f"{prefix}X is O", slots, _equation(kind, denied=denied))
    network.add(f"{prefix}O is X", {**_slots(), "O": "NAME"}, _equation("NAME", denied=denied))


def _equation(kind: str, *, denied: bool) -> Any:
    def read(got: dict[str, Any]) -> Fact | None:
        chain: Chain = got["X"]
        if chain.links:
            value = RELATIONS[chain.links[-1]].value
            fits = kind == (value if value in tables.PLAIN_KINDS else "NAME")
        else:
            fits = isinstance(chain.start, Both) and kind == "NAME"
        return Fact(chain, got["O"], denied) if fits else None

    return read


# Steps.


@cache
def steps() -> Network:
    """Everything a part of a step may be."""
    network = Network()
    denial = "it is not the case that "
    _add_facts(network)
    _add_equations(network)
    _add_facts(network, denial, denied=True)
    _add_equations(network, denial, denied=True)
    for pattern in (*tables.PLANS, *tables.TRANSITIONS):
        network.add(pattern, _slots(), _always(IDLE))
    for pattern in tables.ABSENT:
        network.add(pattern, _slots(), lambda got: Absent(got["X"]))
    for pattern in tables.APART:
        network.add(pattern, _slots(), lambda got: Apart(*_dated(got), got["N"][0]) if _dated(got) else None)
    for relation, (_, same, different) in tables.ALIKE.items():
        network.add(same, _slots(), _alike(relation, same=True))
        network.add(different, _slots(), _alike(relation, same=False))
    _add_orders(network)
    _add_sums(network)
    return network


def _alike(relation: str, *, same: bool) -> Any:
    return lambda got: Alike(got["X"].then(relation), got["Y"].then(relation), same)


def _dated(got: dict[str, Any]) -> tuple[Chain, ...]:
    """Two chains that lead to dates or years; nothing if they do not."""
    pair = (got["X"], got["Y"])
    dated = all(chain.links and RELATIONS[chain.links[-1]].value in ("DATE", "YEAR") for chain in pair)
    return pair if dated else ()


def _add_orders(network: Network) -> None:
    for attribute, order in ORDERS.items():
        for less, ways in ((True, order.less), (False, order.more)):
            for way in ways:
                network.add(f"X {way} Y", _slots(), _versus(attribute, less=less))
        for least, ways in ((True, order.least), (False, order.most)):
            for way in ways:
                network.add(f"A {way}", _slots(), _best((attribute,), least=least))
                for noun, maker in tables.MAKERS.items() if RELATIONS[attribute].subject == "person" else ():
                    read = _best((maker, attribute), least=least)
                    network.add(f"A has the {noun} who {way}", _slots(), read)
                    for word in _words_for(RELATIONS[maker].subject):
                        network.add(f"A is the {word} whose {noun} {way}", _slots(), read)


def _words_for(kind: str) -> list[str]:
    return [word for word, its_kind in tables.KIND_OF_WORD.items() if its_kind == kind]


def _versus(attribute: str, *, less: bool) -> Any:
    return lambda got: Versus(got["X"].then(attribute), got["Y"].then(attribute), less)


def _best(links: tuple[str, ...], *, least: bool) -> Any:
    return lambda got: Best(got["A"], links, least)


def _add_sums(network: Network) -> None:
    slots = {"X": "PLAIN", "Y": "PLAIN", "A": "NUMBER", "B": "NUMBER", "N": "NUMBER"}
    for word, less in (("earlier", True), ("less", True), ("later", False), ("more", False)):
        network.add(f"X is {word} than Y", slots, _ordering(less=less))
    for minus in ("-", "minus"):
        for equals in ("=", "is"):
            network.add(f"A {minus} B {equals} N", slots, lambda got: Sum(got["A"][0] - got["B"][0] == got["N"][0]))


def _ordering(*, less: bool) -> Any:
    def read(got: dict[str, Any]) -> Sum | None:
        (one_kind, one_value), (two_kind, two) = got["X"], got["Y"]
        return Sum(one_value < two if less else one_value > two) if one_kind == two_kind else None

    return read


_CITATION = re.compile(r"\s*\[\d+\]")


@cache
def _openers() -> Network:
    network = Network()
    for pattern in tables.OPENERS:
        first, *rest = pattern.split()
        network.add(" ".join((first.lower(), *rest)), {"N": "NUMBER"}, _always(None))
    return network


@lru_cache(maxsize=65_536)
def read_part(text: str) -> Claim | None:
    """What one part of a step claims, pronouns and all; None unless it can be read in exactly one way."""
    tokens = tokens_of(_CITATION.sub("", text).strip().removesuffix("."))
    if not tokens:
        return None
    start = max(Parser(tokens, Network()).ends(_openers()), default=0)
    claims = Parser(tokens[start:], descriptions(bare=False)).whole(steps())
    return claims[0] if len(claims) == 1 else None


# Questions.


@cache
def _questions() -> Network:
    network = Network()
    for relation in RELATIONS.values():
        for pattern in relation.questions:
            network.add(f"{pattern} ?", _slots(), _lookup(relation.name))
    for head in ("who is", "what is"):
        network.add(f"{head} X ?", _slots(), lambda got: _described(got["X"]))
    for head in ("who", "which person"):
        for_both = Network()
        _add_deeds(for_both, head, lambda both: Goal("value", (Chain(both),)))
        _graft(network, for_both)
    for relation, (question, _, _) in tables.ALIKE.items():
        network.add(f"{question} ?", _slots(), _agreement(relation))
    for pattern in ("how many years lie between X and Y ?", "how many calendar years separate X from Y ?"):
        network.add(pattern, _slots(), lambda got: Goal("years", _dated(got)) if _dated(got) else None)
    network.add("how many calendar years did X live ?", _slots(), _lifetime)
    _add_choices(network)
    return network


def _graft(network: Network, other: Network) -> None:
    """Lay another network's patterns over this one, each followed by a question mark."""
    for letters, action in other.ends:
        network.words.setdefault("?", Network()).ends.append((letters, action))
    for mine, theirs in ((network.words, other.words), (network.slots, other.slots)):
        for key, onward in theirs.items():
            _graft(mine.setdefault(key, Network()), onward)


def _lookup(name: str) -> Any:
    return lambda got: Goal("value", (got["X"].then(name),))


def _described(chain: Chain) -> Goal | None:
    return Goal("value", (chain,)) if chain.links or isinstance(chain.start, Both) else None


def _agreement(relation: str) -> Any:
    return lambda got: Goal("alike", (got["X"].then(relation), got["Y"].then(relation)))


def _lifetime(got: dict[str, Any]) -> Goal:
    return Goal("years", (got["X"].then("born on"), got["X"].then("died on")))


def _add_choices(network: Network) -> None:
    for attribute, order in ORDERS.items():
        kind = RELATIONS[attribute].subject
        for least, ways in ((True, order.least), (False, order.most)):
            for way in ways:
                heads = ["who"] if kind == "person" else [f"which {word}" for word in _words_for(kind)]
                for head in heads:
                    network.add(f"{head} {way} , A or B ?", _slots(), _choice((attribute,), least=least))
                for noun, maker in tables.MAKERS.items() if kind == "person" else ():
                    for word in _words_for(RELATIONS[maker].subject):
                        read = _choice((maker, attribute), least=least)
                        network.add(f"which {word} has the {noun} who {way} , A or B ?", _slots(), read)
                        network.add(f"which {word} 's {noun} {way} , A or B ?", _slots(), read)


def _choice(links: tuple[str, ...], *, least: bool) -> Any:
    return lambda got: Goal("choice", (Chain(got["A"], links), Chain(got["B"], links)), least)


@lru_cache(maxsize=16_384)
def read_goal(question: str) -> Goal | None:
    """What a question asks; None unless it can be read in exactly one way."""
    goals = Parser(tokens_of(question.strip()), descriptions(bare=False)).whole(_questions())
    return goals[0] if len(goals) == 1 else None


# Sentences of passages.


@dataclass(frozen=True, slots=True)
class Told:
    """A fact as a passage tells it, with the year up to which or in which it held."""

    whom: str
    relation: str
    value: Value
    year: int | None = None


@cache
def _sentences() -> Network:
    network = Network()
    for relation in RELATIONS.values():
        for pattern in relation.sentences:
            network.add(pattern, _slots(relation.value), _told(relation.name))
        for pattern in tables.DATED.get(relation.name, ()):
            network.add(pattern, _slots(relation.value), _told(relation.name))
    return network


def _told(name: str) -> Any:
    def read(got: dict[str, Any]) -> Told | None:
        chain, year = got["S"], got.get("N")
        if chain.links or isinstance(chain.start, Both):
            return None
        return Told(chain.start, name, got["O"], year[0] if year else None)

    return read


def read_clause(tokens: list[Token]) -> Told | None:
    """What a clause of a passage tells; None when it is no fact, or could be two."""
    facts = Parser(tokens, descriptions(bare=True)).whole(_sentences())
    return facts[0] if len(facts) == 1 else None


def resolved(chain: Chain, person: str | None, thing: str | None) -> Chain | None:
    """The chain with its pronoun replaced by what was mentioned last; None when nothing was."""
    if chain.start not in ("he", "she", "it"):
        return chain
    referent = thing if chain.start == "it" else person
    return replace(chain, start=referent) if referent else None
