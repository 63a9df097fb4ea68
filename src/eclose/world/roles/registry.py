"""What the world's model says: handlers for its server, one per kind of request.

Generation is answered here: question and passages are read out of the prompt, solved, and broken at the requested
rates. Judging and screening stand in ``judging``; building families and checking them in ``constructing`` and
``verifying``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from eclose.core.instance import Instance
from eclose.core.judgment import LocalFailure
from eclose.core.verdict import FailureClass
from eclose.errors import SettingError
from eclose.protocol.response_prompt import read_input
from eclose.world.faulty.broken_responses import Blow, Plan, Sabotaged, sabotage
from eclose.world.language.questions import read_question
from eclose.world.make.instances import Item
from eclose.world.make.solve import solve
from eclose.world.oracle.evidence import evidence_of
from eclose.world.roles.constructor import register_constructor
from eclose.world.roles.gullible_judges import Trust, trusting
from eclose.world.roles.judge import register_judge
from eclose.world.roles.verifier import register_verifier
from eclose.world.server.chat_requests import BadRequest, ChatRequest, Registry, Reply

FAILURES: dict[str, tuple[Plan, ...]] = {
    **{code.value: tuple(Plan(code, None, blow) for blow in Blow) for code in LocalFailure},
    **{
        kind.value: (Plan(None, kind),)
        for kind in (FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING)
    },
}
"""Failures that can be asked for by name, each a few plans to choose from."""


@dataclass(frozen=True, slots=True)
class FailureRates:
    """How often the model fails, and how."""

    rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse rates that are none."""
        if unknown := [name for name in self.rates if name not in FAILURES]:
            raise SettingError(f"there is no failure {unknown[0]!r}. Choose from: {', '.join(FAILURES)}.")
        if not all(0 <= rate <= 1 for rate in self.rates.values()) or sum(self.rates.values()) > 1:
            raise SettingError("failure rates must lie between 0 and 1, and add up to at most 1.")

    def draw(self, rng: Random) -> str | None:
        """How the next response is to fail; None for not at all."""
        roll = rng.random()
        for name, rate in self.rates.items():
            if roll < rate:
                return name
            roll -= rate
        return None


def world_registry(
    failures: FailureRates | None = None,
    seed: int = 0,
    *,
    judge_noise: float = 0.0,
    judge_trust: Trust | None = None,
    constructor_noise: float = 0.0,
    verifier_noise: float = 0.0,
) -> Registry:
    """The handlers of the world. Its judge obeys nothing that it is shown, unless told whom to trust."""
    registry = Registry()
    register_judge(registry, noise=judge_noise, seed=seed)
    if judge_trust is not None:
        registry = trusting(registry, judge_trust)
    register_constructor(registry, noise=constructor_noise, seed=seed)
    register_verifier(registry, noise=verifier_noise, seed=seed)
    registry.register(None, lambda request: generate(request, failures or FailureRates(), seed))
    return registry


def generate(request: ChatRequest, failures: FailureRates, seed: int) -> Reply:
    """A response to the question in the last turn; the same request always gets the same one."""
    found = read_input(request.messages[-1]["content"])
    if found is None:
        raise BadRequest("the last message is not a question with passages as the response prompt writes them")
    question, passages = found
    target = read_question(question)
    solution = solve(target, evidence_of(passages)) if target is not None else None
    if target is None or solution is None:
        # A model says something even so; an honest one says that it does not know.
        return Reply("1. Let us read the passages.\nFinal answer: not determined")
    draw = f"{seed}/{request.key}"
    item = Item(Instance(request.key, question, passages), target, solution, None, (), draw, ())
    completion = break_item(item, failures).response.completion
    assert completion is not None
    return Reply(completion)


def break_item(item: Item, failures: FailureRates) -> Sabotaged:
    """The item's response, failing as often and in such ways as asked.

    Where this item cannot fail that way the response stays reliable; ``asked`` says what was wanted.
    """
    rng = Random(f"{item.seed}/failure")
    asked = failures.draw(rng)
    plans = list(FAILURES[asked]) if asked else []
    rng.shuffle(plans)
    for plan in (*plans, Plan()):
        if (made := sabotage(item, plan, "failure")) is not None:
            return replace(made, asked=asked)
    raise AssertionError("a reliable response can always be made")
