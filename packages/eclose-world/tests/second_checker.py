"""A second judge of the world's responses, to hold the oracle against: own parser, own reasoning, own tables.

It reads question, passages and trace with a transition network (``second/network.py``), the passages into a graph of
nodes (``second/evidence.py``), the trace into another that an automaton of the question runs over
(``second/story.py``). It imports nothing from ``eclose_world``. ``None`` stands for what it cannot decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eclose.values.judgment import LocalFailure
from eclose.values.three_valued import Label, three_valued_and, three_valued_implies
from eclose.values.verdict import Verdict
from tests.second.evidence import Graph
from tests.second.network import Both, Chain, Token, Value, tokens_of
from tests.second.readings import IDLE, Absent, Alike, Apart, Best, Claim, Fact, Goal, Sum, Versus, read_goal
from tests.second.story import ABSTAIN, Listener, Story
from tests.second.tables import ABSTENTIONS, ALIAS, EMPTY_WORDS, RELATIONS, UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.instance import Instance, Passage
    from eclose.values.response import Response

L1, L2, L3, L4, L5 = LocalFailure


@dataclass(frozen=True, slots=True)
class StepCheck:
    """One step: does it say anything, does it hold, and why not."""

    substantive: Label
    sound: Label = None
    failure: LocalFailure | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """All that is said of a response."""

    verdict: Verdict
    steps: tuple[StepCheck, ...]


def check(instance: Instance, response: Response) -> Verdict:
    """The five labels of a response."""
    return check_fully(instance, response).verdict


def check_fully(instance: Instance, response: Response) -> Check:
    """The five labels and every step."""
    goal = read_goal(instance.question)
    listener, auditor = Listener(), Auditor(graph_of(instance.evidence), goal)
    steps, claims, readable = [], [], True
    for text in response.trace.texts:
        step_claims = listener.claims(text)
        if step_claims is None:
            steps.append(StepCheck(None))
            readable = False
        else:
            steps.append(auditor.step(step_claims))
            claims += step_claims
    sound = three_valued_and(three_valued_implies(step.substantive, step.sound) for step in steps)
    # Where there is only an answer, nothing can be said of a trace.
    judged = goal if readable and response.trace.texts else None
    aligned, closed, complete = _whole(instance, response, claims, judged) if judged else (None, None, None)
    if goal and steps and steps[-1].substantive is not None and _answers(claims[-1], goal):
        # What a trace ends with is what it pursues, whatever could not be read before.
        aligned = True
    abstained = (response.answer or "").strip(" .").lower() == "not determined"
    correct = _correct(instance, response)
    return Check(Verdict(sound, aligned, closed, complete, correct, abstained=abstained), tuple(steps))


def _answers(claim: Claim, goal: Goal) -> bool:
    """Whether a claim says what all of a question's chain leads to."""
    if not isinstance(claim, Fact) or claim.denied or goal.mode != "value":
        return False
    chain = goal.chains[0]
    return len(chain.links) > 1 and (claim.chain.start, claim.chain.links) == (chain.start, chain.links)


def _whole(instance: Instance, response: Response, claims: list[Claim], goal: Goal) -> tuple[Label, Label, Label]:
    """Alignment, closure and completeness."""
    story = Story(claims, goal)
    line = story.main_line()
    answers = story.answers()
    closed: Label = None
    if response.answer is not None:
        closed = _is_the_one(story, story.says(line[1]) if line and not line[0] else answers, response.answer)
    complete: Label = None
    if instance.accepted_answers:
        complete = any(_is_the_one(story, answers, accepted) is True for accepted in instance.accepted_answers)
    return line[0] if line else None, closed, complete


def _is_the_one(story: Story, found: set[Value], answer: str) -> Label:
    """Whether exactly one value follows and the answer means it, by any name the trace has for it."""
    if len(found) != 1:
        return False
    (value,) = found
    return _any(_means(answer, name) for name in story.all_names(value))


def _correct(instance: Instance, response: Response) -> Label:
    if response.answer is None or not instance.accepted_answers:
        return None
    if _words(response.answer) == [ABSTAIN]:
        return False
    return _any(_means(response.answer, accepted) for accepted in instance.accepted_answers)


def _any(labels: Iterable[Label]) -> Label:
    values = set(labels)
    return True if True in values else None if None in values else False


def _means(answer: str, value: Value) -> Label:
    """Whether an answer means a value; None when it only holds it among other words."""
    words, expected = _words(answer), [value] if isinstance(value, tuple) else _words(value)
    if expected in (["yes"], ["no"]):
        return words[:1] == expected and "or" not in words[1:2]
    if words == expected and words:
        return True
    if ABSTAIN in (*words, *expected) or "or" in words:
        return False
    holds = _holds(words, expected) or (isinstance(value, str) and _holds(_letters(answer), _letters(value)))
    return None if holds else False


def _holds(words: list[Value], few: list[Value]) -> bool:
    return bool(few) and any(words[at : at + len(few)] == few for at in range(len(words)))


def _letters(text: str) -> list[Value]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _ARTICLES]


def _words(text: str) -> list[Value]:
    """An answer as the words and values that matter: two answers that share them mean the same."""
    text = _LEAD.sub("", text.strip().rstrip("."))
    if text.lower() in ABSTENTIONS:
        return [ABSTAIN]
    tokens = tokens_of(text)
    if len(tokens) == 2 and tokens[0].kind == "NUMBER" and tokens[1].text in UNITS:
        tokens = tokens[:1]
    if _is_surname_first(tokens):
        tokens = [*tokens[2:], tokens[0]]
    terms = [token for token in tokens if token.value or token.text.isalnum() or len(token.text) > 1]
    words = [token.value or token.text.lower() for token in terms]
    return [word for word in words if word not in _ARTICLES]


def _is_surname_first(tokens: list[Token]) -> bool:
    """Surname, comma, given name, and perhaps an initial: as in an index."""
    if len(tokens) not in (3, 4) or tokens[1].text != ",":
        return False
    return all(token.large for token in (tokens[0], *tokens[2:])) and len("".join(t.text for t in tokens[3:])) <= 1


_ARTICLES = ("a", "an", "the")
_LEAD = re.compile(rf"^(?:{'|'.join(EMPTY_WORDS)})\s+", re.IGNORECASE)


@lru_cache(maxsize=1_024)
def graph_of(passages: tuple[Passage, ...]) -> Graph:
    """The passages' graph, made once."""
    return Graph(passages)


class Auditor:
    """Holds one claim after another against the passages."""

    def __init__(self, graph: Graph, goal: Goal | None) -> None:
        self.graph = graph
        self.options = {str(chain.start) for chain in goal.chains} if goal and goal.mode == "choice" else set()
        """What the question chooses between."""
        self.roles: dict[str, str] = {}
        """As what each name was introduced: tells namesakes apart."""
        self.facts: list[Fact] = []
        self.versus: Versus | None = None

    def step(self, claims: list[Claim]) -> StepCheck:
        """A step holds if all its claims do; the first that does not gives the reason."""
        verdicts = [self._heard(claim) for claim in claims if claim != IDLE]
        if not verdicts:
            return StepCheck(substantive=False)
        for sound, failure in verdicts:
            if sound is False:
                return StepCheck(True, False, failure)
        return StepCheck(True, three_valued_and(sound for sound, _ in verdicts))

    def _heard(self, claim: Claim) -> tuple[Label, LocalFailure | None]:
        failure = self._fault(claim)
        if isinstance(claim, Fact) and not claim.denied and claim.chain.links:
            self.facts.append(claim)
            role = RELATIONS[claim.chain.links[-1]].role
            if role and isinstance(claim.value, str) and not isinstance(claim.chain.start, Both):
                self.roles[claim.value] = role
        if isinstance(claim, Versus):
            self.versus = claim
        rests_on_silence = failure in (L1, L2) or (isinstance(claim, Absent) and failure is None)
        if rests_on_silence and self.graph.unclear_about(self._names_in(claim)):
            return None, None
        return failure is None, failure

    def _ends(self, chain: Chain) -> set[Value]:
        return self.graph.ends(chain, self.roles.get(chain.start) if isinstance(chain.start, str) else None)

    def _fault(self, claim: Claim) -> LocalFailure | None:
        """What is wrong with a claim; None when nothing is."""
        if isinstance(claim, Fact):
            return self._denial(claim) if claim.denied else self._fact(claim)
        if isinstance(claim, Absent):
            return L4 if self._ends(claim.chain) else None
        if isinstance(claim, Sum):
            return None if claim.right else L3
        if isinstance(claim, Best):
            return self._best(claim)
        assert isinstance(claim, Versus | Alike | Apart)
        return self._pair(claim)

    def _fact(self, fact: Fact) -> LocalFailure | None:
        if fact.chain.links == (ALIAS,) and isinstance(fact.chain.start, str):
            return None if self.graph.same(fact.chain.start, fact.value) else L2
        if self._holds(fact, self._ends(fact.chain)):
            return None
        # One relation is content; several, a person with two deeds, or a namesake's fact are an inference.
        inferred = len(fact.chain.links) != 1 or isinstance(fact.chain.start, Both)
        return L2 if inferred or fact.value in self.graph.ends(fact.chain) else L1

    def _holds(self, fact: Fact, values: set[Value]) -> bool:
        return any(self.graph.same(value, fact.value) for value in values)

    def _denial(self, fact: Fact) -> LocalFailure | None:
        values = self._ends(fact.chain)
        if self._holds(fact, values):
            return L5
        # Another value rules this one out only where there can be but one.
        only = bool(values) and bool(fact.chain.links) and not RELATIONS[fact.chain.links[-1]].many
        return None if only else L1

    def _pair(self, claim: Versus | Alike | Apart) -> LocalFailure | None:
        ones, twos = self._ends(claim.one), self._ends(claim.two)
        if len(ones) != 1 or len(twos) != 1:
            return L2
        (first,), (second,) = ones, twos
        if isinstance(claim, Alike):
            right = self.graph.same(first, second) == claim.same
        elif isinstance(claim, Apart):
            right = abs(int(first[0]) - int(second[0])) == claim.years
        else:
            right = first < second if claim.less else first > second
        return None if right else L3

    def _best(self, claim: Best) -> LocalFailure | None:
        """Among what the trace has weighed, or else what the question offers."""
        for names in (self._considered(claim), self.options if claim.name in self.options else set()):
            by_name = {}
            for name in {claim.name, *names}:
                if len(values := self._ends(Chain(name, claim.links))) == 1:
                    (by_name[name],) = values
            if claim.name in by_name and len(by_name) > 1:
                best = (min if claim.least else max)(by_name.values())
                return None if by_name[claim.name] == best and list(by_name.values()).count(best) == 1 else L3
        return L2

    def _considered(self, claim: Best) -> set[str]:
        """Whom the claim is about to single one out of: the last two compared, or all whose value was told."""
        pairs = [(fact.chain.start, fact.value) for fact in self.facts if fact.chain.links == claim.links[:1]]
        names = {name for name, _ in pairs}
        if self.versus is not None:
            sides = {self.versus.one.start, self.versus.two.start}
            names = sides | {name for name, value in pairs if value in sides}
        return {name for name in names if isinstance(name, str)}

    def _names_in(self, claim: Claim) -> set[Value]:
        """Every name a claim rests on, said or passed through."""
        if isinstance(claim, Fact):
            return {claim.value, *self._names_on(claim.chain)}
        if isinstance(claim, Best):
            return self._names_on(Chain(claim.name, claim.links))
        chains = (claim.chain,) if isinstance(claim, Absent) else (claim.one, claim.two)
        return set().union(*(self._names_on(chain) for chain in chains))

    def _names_on(self, chain: Chain) -> set[Value]:
        passed = (self._ends(Chain(chain.start, chain.links[:size])) for size in range(len(chain.links)))
        works = {work for _, work in chain.start.deeds} if isinstance(chain.start, Both) else set()
        return works.union(*passed)
