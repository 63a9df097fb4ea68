"""Passages as a graph: a node for whatever a passage is about, edges for what is told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tests.second.network import PRONOUNS, Both, Chain, Token, Value, tokens_of
from tests.second.readings import Told, read_clause
from tests.second.tables import ALIAS, KIND_OF_WORD, RELATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.instance import Passage

_NOW = 9_999
# "is a 1990 crime film directed by ...": the word before the name or value, by kind of thing.
_TAILS = {
    ("film", "by"): "director", ("film", "from"): "released", ("book", "by"): "author", ("song", "by"): "performer",
    ("person", "from"): "born in", ("city", "in"): "country", ("company", "based in"): "seat",
    ("company", "founded in"): "founded", ("university", "in"): "campus",
    ("film", "directed by"): "director", ("song", "recorded by"): "performer",
}  # fmt: skip
_DATE_OF = {"film": "released", "book": "published", "song": "issued"}
_TAIL_WORDS = frozenset({"by", "from", "in", "based", "founded", "directed", "recorded", "for"})


@dataclass(eq=False)
class Node:
    """Someone or something a passage is about."""

    names: set[str]
    kind: str | None = None
    occupation: str | None = None
    mentioned: bool = False
    """Only told of in a passage about something else."""
    told: list[Told] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Clauses that tell no fact one could read; most are there to fill the page."""

    def values(self, relation: str, since: int = 0) -> set[Value]:
        """What holds now, or held last, unless something later is known from elsewhere."""
        latest = max(since, self.latest(relation))
        return {statement.value for statement in self._of(relation) if (statement.year or _NOW) == latest}

    def latest(self, relation: str) -> int:
        """When the last value that is told here held."""
        return max((statement.year or _NOW for statement in self._of(relation)), default=0)

    def _of(self, relation: str) -> list[Told]:
        return [statement for statement in self.told if statement.relation == relation]


class Graph:
    """All the nodes of an instance."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.nodes: list[Node] = []
        for passage in passages:
            node, others = _read(passage.title, passage.text)
            self.nodes += [node, *others]

    def bearers(self, name: str, kind: str, role: str | None) -> list[Node]:
        """Who a name may stand for; of several, those who have the role it was introduced in."""
        candidates = [node for node in self.nodes if name in node.names and node.kind in (kind, None)]
        fitting = [node for node in candidates if node.occupation == role]
        # Somebody only mentioned may be anybody.
        return [node for node in candidates if node in fitting or node.mentioned] if role and fitting else candidates

    def values(self, name: str, relation: str, role: str | None) -> set[Value]:
        """What holds now of a name: what one passage tells of the past gives way to what another tells of later."""
        nodes = self.bearers(name, RELATIONS[relation].subject, role)
        elsewhere = [node for node in nodes if node.mentioned]
        heard = max((node.latest(relation) for node in elsewhere), default=0)
        newest = max((node.latest(relation) for node in nodes), default=0)
        return set().union(*(node.values(relation, newest if node.mentioned else heard) for node in nodes))

    def same(self, one: Value, two: Value) -> bool:
        """Whether two values are one, or two names of one person."""
        return one == two or any(one in node.names and two in node.names for node in self.nodes)

    def ends(self, chain: Chain, role: str | None = None) -> set[Value]:
        """Every value a chain leads to."""
        at: set[Value] = self._doers(chain.start) if isinstance(chain.start, Both) else {chain.start}
        for link in chain.links:
            at = set().union(*(self.values(name, link, role) for name in at if isinstance(name, str)))
            role = RELATIONS[link].role
        return at

    def _doers(self, both: Both) -> set[Value]:
        first, second = (self.ends(Chain(work, (relation,))) for relation, work in both.deeds)
        return {value for value in first if any(self.same(value, other) for other in second)}

    def unclear_about(self, names: Iterable[Value]) -> bool:
        """Whether a clause nobody could read may speak of one of these."""
        spoken_of = [name for name in names if isinstance(name, str)]
        clauses = [clause for node in self.nodes for clause in node.unread]
        if any(_speaks_of(clause, name) for clause in clauses for name in spoken_of):
            return True
        return any(name in node.names for node, _ in self._unclear for name in spoken_of)

    @cached_property
    def _unclear(self) -> list[tuple[Node, str]]:
        """Clauses that were not read and say something: what fills the page names nobody and has no figures."""
        values = {statement.value for node in self.nodes for statement in node.told}
        names = {name for name in values.union(*(node.names for node in self.nodes)) if isinstance(name, str)}
        return [
            (node, clause)
            for node in self.nodes
            for clause in node.unread
            if re.search(r"\d", clause) or any(_speaks_of(clause, name) for name in names)
        ]


def _speaks_of(clause: str, name: str) -> bool:
    return name in clause and re.search(rf"\b{re.escape(name)}\b", clause) is not None


@lru_cache(maxsize=8_192)
def _read(title: str, text: str) -> tuple[Node, tuple[Node, ...]]:
    """A passage as its node, and further nodes for others it tells of."""
    name = re.sub(r" \([a-z ]+\)$", "", title)
    node, others = Node({name}), {}
    for sentence in re.split(r"(?<=\.)\s+", text.strip()):
        if _read_opening(tokens_of(sentence.removesuffix(".")), name, node):
            continue
        for clause in sentence.removesuffix(".").split(", and "):
            statement = read_clause(tokens_of(clause))
            if statement is None:
                node.unread.append(clause)
            elif statement.whom.lower() in PRONOUNS or statement.whom in (name, name.split()[-1]):
                node.told.append(_about(statement, name))
            else:
                others.setdefault(statement.whom, Node({statement.whom}, mentioned=True)).told.append(statement)
    for subject in (node, *others.values()):
        subject.names |= {str(statement.value) for statement in subject.told if statement.relation == ALIAS}
    return node, tuple(others.values())


def _about(told: Told, name: str) -> Told:
    """A pronoun for a value stands for whatever the passage is about."""
    return Told(name, told.relation, name, told.year) if told.value in PRONOUNS else told


def _read_opening(tokens: list[Token], name: str, node: Node) -> bool:
    """The first sentence, by descent: name, dates in brackets, "is a", date, qualities, noun, what follows."""
    size = len(tokens_of(name))
    if " ".join(token.text for token in tokens[:size]) != name:
        return False
    rest, statements = _brackets(tokens[size:], name)
    if [token.text for token in rest[:1]] not in (["is"], ["was"]) or rest[1].text not in ("a", "an"):
        return False
    rest = rest[2:]
    cut = next((at for at, token in enumerate(rest) if token.text in _TAIL_WORDS), len(rest))
    noun, tail = rest[:cut], rest[cut:]
    if not noun or any(token.large for token in noun):
        return False
    kind = KIND_OF_WORD.get(noun[-1].text, "person")
    if noun[0].kind == "NUMBER":
        statements.append(Told(name, _DATE_OF[kind], noun[0].value))
    more = _tail(tail, kind, name)
    if more is None:
        return False
    node.kind, node.told = kind, [*node.told, *statements, *more]
    node.occupation = " ".join(token.text for token in noun) if kind == "person" else None
    return True


def _brackets(tokens: list[Token], name: str) -> tuple[list[Token], list[Told]]:
    """What stands in brackets after a name: the dates and the place of a life."""
    if not tokens or tokens[0].text != "(":
        return tokens, []
    end = next(at for at, token in enumerate(tokens) if token.text == ")")
    inner = tokens[1:end]
    dates = [token.value for token in inner if token.kind == "DATE"]
    statements = [Told(name, relation, date) for relation, date in zip(("born on", "died on"), dates, strict=False)]
    words = [token.text for token in inner]
    if "in" in words:
        statements.append(Told(name, "born in", " ".join(words[words.index("in") + 1 :])))
    return tokens[end + 1 :], statements


def _tail(tokens: list[Token], kind: str, name: str) -> list[Told] | None:
    """What follows the noun; None when it cannot be read."""
    if not tokens or tokens[0].text == "for":
        return []
    size = next((at for at, token in enumerate(tokens) if token.text not in _TAIL_WORDS), len(tokens))
    relation = _TAILS.get((kind, " ".join(token.text for token in tokens[:size])))
    value = tokens[size:]
    if relation is None or not value:
        return None
    plain = RELATIONS[relation].plain
    return [Told(name, relation, value[0].value if plain else " ".join(token.text for token in value))]
