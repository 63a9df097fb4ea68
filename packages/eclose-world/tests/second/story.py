"""A trace as a graph of its own: what its claims lead to if taken as true, and which way they are going.

The question is an automaton of one or two tracks, each a start and the relations to follow. A name the trace reaches
is in the states its facts put it in; a claim is on the way if it moves some state further along a track.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.second.network import Both, Chain, Value
from tests.second.readings import Absent, Alike, Apart, Best, Claim, Fact, Goal, Versus, read_part, resolved
from tests.second.tables import ALIAS, MAKERS, RELATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ABSTAIN = "not determined"
OPEN = "?"
"""Where an alternative leads of which nothing more is said."""
_State = tuple[int, int]


class Listener:
    """Reads steps in order and knows whom the pronouns mean."""

    def __init__(self) -> None:
        self.person: str | None = None
        self.thing: str | None = None
        self.thing_before: str | None = None

    def claims(self, step: str) -> list[Claim] | None:
        """The claims of a step; None when a part of it cannot be read."""
        claims = []
        for part in step.split("; "):
            read = read_part(part)
            claim = self._resolved(read) if read is not None else None
            if claim is None:
                return None
            self._note(claim)
            claims.append(claim)
        return claims

    def _resolved(self, claim: Claim) -> Claim | None:
        if isinstance(claim, Fact):
            chain, value = self._chain(claim.chain, claim.value), claim.value
            whom = self._chain(Chain(value)) if isinstance(value, str) else None
            return replace(claim, chain=chain, value=whom.start if whom else value) if chain else None
        if isinstance(claim, Absent):
            chain = self._chain(claim.chain)
            return Absent(chain) if chain else None
        if isinstance(claim, Versus | Alike | Apart):
            first, two = self._chain(claim.one), self._chain(claim.two)
            return replace(claim, one=first, two=two) if first and two else None
        return claim

    def _chain(self, chain: Chain, value: object = None) -> Chain | None:
        """The chain without its pronoun, which never means the value that the claim gives it."""
        return resolved(chain, self.person, self.thing_before if self.thing == value else self.thing)

    def _note(self, claim: Claim) -> None:
        """The value of a fact is what one speaks of next, before its subject."""
        if not isinstance(claim, Fact) or claim.denied:
            return
        links = claim.chain.links
        if links:
            self._mention(claim.chain.start, RELATIONS[links[0]].subject)
        self._mention(claim.value, RELATIONS[links[-1]].value if links else "person")

    def _mention(self, what: object, kind: str) -> None:
        if not isinstance(what, str):
            return
        if kind == "person":
            self.person = what
        elif what != self.thing:
            self.thing, self.thing_before = what, self.thing


class Story:
    """The claims of a whole trace, held against a question."""

    def __init__(self, claims: Sequence[Claim], goal: Goal) -> None:
        self.claims = claims
        self.goal = goal
        stated = [claim for claim in claims if isinstance(claim, Fact) and not claim.denied]
        self.facts = [fact for fact in stated if not _joins(fact)]
        """What the trace states, without the names it joins."""
        self._one_name: dict[str, str] = {}
        for fact in stated:
            if _joins(fact):
                self._join(str(fact.chain.start), str(fact.value))
        self.tracks = _tracks(goal)
        self._states = self._reached()

    # Names.

    def _join(self, one: str, two: str) -> None:
        root, given_up = self.root(one), self.root(two)
        if root != given_up:
            self._one_name[str(given_up)] = str(root)

    def root(self, value: Value | Both) -> Value | Both:
        """One name for all that the trace says are the same."""
        while isinstance(value, str) and value in self._one_name:
            value = self._one_name[value]
        return value

    def all_names(self, value: Value) -> list[Value]:
        """Every name of what a value stands for."""
        names = [value, self.root(value), *self._one_name]
        return [name for name in names if not isinstance(name, Both) and self.root(name) == self.root(value)]

    # What the claims lead to.

    def ends(self, chain: Chain) -> set[Value]:
        """Where the claims lead along a chain. At each place on it, only what took the fewest claims to say counts."""
        places = [self._beginnings(chain.start)]
        for end in range(1, len(chain.links) + 1):
            costs: dict[Value | Both, int] = {}
            for begin, starts in enumerate(places):
                for value, cost in self._onward(starts, chain.links[begin:end]):
                    costs[value] = min(cost, costs.get(value, cost))
            least = min(costs.values(), default=0)
            places.append({value: cost for value, cost in costs.items() if cost == least})
        return {value for value in places[-1] if not isinstance(value, Both)}

    def _onward(self, known: dict[Value | Both, int], links: tuple[str, ...]) -> Iterator[tuple[Value | Both, int]]:
        for fact in self.facts:
            if fact.chain.links == links and (start := self.root(fact.chain.start)) in known:
                yield self.root(fact.value), known[start] + 1
                # If it may be somebody else as well, what follows for them is as good, and so is that nothing does.
                rivals = [other for other in known if isinstance(other, str) and other != start]
                for other in rivals if isinstance(start, str) else ():
                    yield from ((end, known[start] + 1) for end in self.ends(Chain(other, links)) or {OPEN})

    def _beginnings(self, start: str | Both) -> dict[Value | Both, int]:
        """Where a chain begins, and in how many claims: for whoever did two things, who that is."""
        if not isinstance(start, Both):
            return {self.root(start): 0}
        if identities := {self.root(fact.value): 1 for fact in self.facts if fact.chain == Chain(start)}:
            return {start: 0, **identities}
        first, two = (self.ends(Chain(work, (relation,))) for relation, work in start.deeds)
        return {start: 0, **dict.fromkeys(first & two, 2)}

    # Which way they go.

    def _reached(self) -> dict[Value | Both, set[_State]]:
        states: dict[Value | Both, set[_State]] = {}
        for number, track in enumerate(self.tracks):
            states.setdefault(self.root(track.start), set()).add((number, 0))
        self._states = states
        growing = True
        while growing:
            growing = False
            for fact in self.facts:
                value_states = states.setdefault(self.root(fact.value), set())
                fresh = self.moves(fact.chain) - value_states
                value_states |= fresh
                growing = growing or bool(fresh)
        return states

    def moves(self, chain: Chain) -> set[_State]:
        """The states a chain leads to, from those its start is in."""
        size, states = len(chain.links), set()
        for number, position in self._states.get(self.root(chain.start), ()):
            if self.tracks[number].links[position : position + size] == chain.links:
                states.add((number, position + size))
        if self._did_one_deed(states):
            states.add((0, 0))
        return states

    def _did_one_deed(self, states: Iterable[_State]) -> bool:
        """Whoever did one of two things asked for is where the question goes on from."""
        return isinstance(self.tracks[0].start, Both) and any(
            number > 0 and position == 1 for number, position in states
        )

    def _goes_for_both(self, one: Chain, two: Chain) -> bool:
        """Whether two chains go for the question's two values."""
        if len(self.goal.chains) != 2:
            return False
        first, second = ((number, len(track.links)) for number, track in enumerate(self.tracks))
        left_states, right = self.moves(one), self.moves(two)
        return (first in left_states and second in right) or (second in left_states and first in right)

    def main_line(self) -> tuple[bool, Claim] | None:
        """Whether the main line of the trace is the question's, and the claim that shows it; None when none does.

        A conclusion shows it, the last if there are several, but for facts on the question's way that come later.
        Without a conclusion it is the last claim about something the question or the trace has brought up.
        """
        last: tuple[bool, Claim] | None = None
        loose: tuple[bool, Claim] | None = None
        concluded, strayed = False, False
        for claim in self.claims:
            if isinstance(claim, Versus):
                strayed = self._among_others(claim)
            on_the_way = self._is_on_the_way(claim, strayed=strayed)
            if on_the_way is None:
                continue
            if _concludes(claim):
                last, concluded = (on_the_way, claim), True
            elif concluded:
                goes_on = on_the_way and isinstance(claim, Fact) and not claim.denied
                last = (True, claim) if goes_on else last
            elif self._was_brought_up(claim):
                last = (on_the_way, claim)
            else:
                loose = (on_the_way, claim)
        return last or loose

    def _was_brought_up(self, claim: Claim) -> bool:
        """Whether a claim speaks of something the question names or some fact of the trace leads to."""
        assert isinstance(claim, Fact | Absent)
        values = [track.start for track in self.tracks] + [fact.value for fact in self.facts]
        return isinstance(claim.chain.start, Both) or self.root(claim.chain.start) in map(self.root, values)

    def _is_on_the_way(self, claim: Claim, *, strayed: bool) -> bool | None:
        """Whether a claim serves the question; None for one that shows nothing."""
        if (isinstance(claim, Fact) and not _joins(claim)) or isinstance(claim, Absent):
            return bool(self.moves(claim.chain))
        if isinstance(claim, Best):
            return self._answers_choice(claim) and not strayed
        if not isinstance(claim, Versus | Alike | Apart):
            return None
        mode = {Versus: "choice", Alike: "alike", Apart: "years"}[type(claim)]
        if self.goal.mode != mode:
            return False
        if self._goes_for_both(claim.one, claim.two):
            return True
        explained = all(self._is_own(side) for side in (claim.one, claim.two))
        return False if explained or not self._asks_for(claim) or self._among_others(claim) else None

    def _asks_for(self, claim: Versus | Alike | Apart) -> bool:
        """Whether two things are held against each other in what the question asks about."""
        relations = sorted(chain.links[-1] for chain in self.goal.chains)
        return sorted((claim.one.links[-1], claim.two.links[-1])) == relations

    def _among_others(self, claim: Versus | Alike | Apart) -> bool:
        """Whether a comparison is known to be of something else; a link that is missing shows nothing."""
        return len(self.goal.chains) != 2 or any(self._is_foreign(side) for side in (claim.one, claim.two))

    def _is_foreign(self, side: Chain) -> bool:
        """Whether one side of a comparison is known to be none of those the question compares."""
        if self._is_own(side):
            return False
        whom = Chain(side.start, side.links[:-1])
        # Who made what the question names may be left unsaid; who made another thing, or another option, is no gap.
        bridged = any(len(track.links) > 1 for track in self.tracks)
        return not bridged or bool(whom.links) or any(self._made_something(fact, whom.start) for fact in self.facts)

    def _is_own(self, side: Chain) -> bool:
        """Whether one side is one of those the question compares, by whatever they are compared."""
        whom = Chain(side.start, side.links[:-1])
        reached = self.moves(whom) if whom.links else self._states.get(self.root(whom.start), set())
        return any(position == len(self.tracks[number].links) - 1 for number, position in reached)

    def _made_something(self, fact: Fact, whom: str | Both) -> bool:
        is_creation = bool(fact.chain.links) and fact.chain.links[-1] in MAKERS.values()
        return is_creation and self.root(fact.value) == self.root(whom)

    def _answers_choice(self, claim: Best) -> bool:
        if self.goal.mode != "choice" or claim.least != self.goal.least:
            return False
        options = {self.root(chain.start) for chain in self.goal.chains}
        return self.root(claim.name) in options and claim.links == self.goal.chains[0].links

    # What follows.

    def answers(self) -> set[Value]:
        """Every answer to the question that follows from the claims: the conclusions drawn, else what the facts say."""
        if self.goal.mode == "value":
            return self.ends(self.goal.chains[0]) or self._abstention()
        if conclusions := self._chosen() or self._weighed():
            return conclusions
        first, two = (self.ends(chain) for chain in self.goal.chains)
        return self._worked_out(*first, *two) if len(first) == len(two) == 1 else self._abstention()

    def _chosen(self) -> set[Value]:
        """A choice counts if it was not made between other things."""
        names, strayed = set(), False
        for claim in self.claims:
            if isinstance(claim, Versus):
                strayed = self._among_others(claim)
            if isinstance(claim, Best) and self._answers_choice(claim) and not strayed:
                names.add(claim.name)
        return names

    def _weighed(self) -> set[Value]:
        """What comparisons, agreements and spans of the question's two values say."""
        goal_pair = [self._shortened(chain) for chain in self.goal.chains]
        kind = {"choice": Versus, "alike": Alike, "years": Apart}[self.goal.mode]
        values: set[Value] = set()
        for claim in self.claims:
            if not isinstance(claim, kind):
                continue
            assert isinstance(claim, Versus | Alike | Apart)
            pair = [self._shortened(claim.one), self._shortened(claim.two)]
            if pair not in (goal_pair, goal_pair[::-1]):
                continue
            if isinstance(claim, Alike):
                values.add("yes" if claim.same else "no")
            elif isinstance(claim, Apart):
                values.add((claim.years,))
            elif goal_pair[0] != goal_pair[1]:
                first_is_least = claim.less == (pair == goal_pair)
                values.add(self._option(first=first_is_least == self.goal.least))
        return values

    def _shortened(self, chain: Chain) -> Chain:
        """The chain from the last thing on it that the claims settle: "the director of X" is who directed X."""
        for cut in range(len(chain.links) - 1, 0, -1):
            if len(whom := self.ends(Chain(chain.start, chain.links[:cut]))) == 1:
                return Chain(str(*whom), chain.links[cut:])
        start = self.root(chain.start)
        return replace(chain, start=start) if not isinstance(start, tuple) else chain

    def _option(self, *, first: bool) -> str:
        return str(self.goal.chains[0 if first else 1].start)

    def _worked_out(self, left: Value, right: Value) -> set[Value]:
        """The answer two values give, if they differ as they must."""
        if self.goal.mode == "alike":
            return {"yes" if left == right else "no"}
        if isinstance(left, str) or isinstance(right, str):
            return set()
        if self.goal.mode == "years":
            return {(abs(left[0] - right[0]),)}
        return {self._option(first=(left < right) == self.goal.least)} if left != right else set()

    def _abstention(self) -> set[Value]:
        """The trace says of something on the way that the passages do not tell it."""
        gaps = [claim.chain for claim in self.claims if isinstance(claim, Absent)]
        return {ABSTAIN} if any(self._is_where_it_ends(chain) for chain in gaps) else set()

    def _is_where_it_ends(self, gap: Chain) -> bool:
        """Whether the claims lead along a track to where the gap is, and to nowhere else."""
        for number, position in self.moves(gap):
            before = replace(self.tracks[number], links=self.tracks[number].links[: position - len(gap.links)])
            if self.root(gap.start) == self.root(before.start) or self.ends(before) == {self.root(gap.start)}:
                return True
        return False

    def says(self, claim: Claim) -> set[Value]:
        """What the claim that shows a main line elsewhere concludes there."""
        if isinstance(claim, Fact) and not claim.denied:
            return self.ends(claim.chain)
        if isinstance(claim, Best):
            return {claim.name}
        if isinstance(claim, Alike):
            return {"yes" if claim.same else "no"}
        if isinstance(claim, Apart):
            return {(claim.years,)}
        return {ABSTAIN} if isinstance(claim, Absent) else set()


def _concludes(claim: Claim) -> bool:
    """Whether a claim puts several things together."""
    if isinstance(claim, Fact):
        return not claim.denied and (len(claim.chain.links) != 1 or isinstance(claim.chain.start, Both))
    return isinstance(claim, Versus | Best | Alike | Apart)


def _joins(fact: Fact) -> bool:
    """Whether a fact only says that two names are one person's."""
    return fact.chain.links == (ALIAS,) and isinstance(fact.chain.start, str)


def _tracks(goal: Goal) -> list[Chain]:
    start = goal.chains[0].start
    if len(goal.chains) == 1 and isinstance(start, Both):
        return [goal.chains[0], *(Chain(work, (relation,)) for relation, work in start.deeds)]
    return list(goal.chains)
