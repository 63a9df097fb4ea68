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
from eclose.protocol.response_prompt import parse_input
from eclose.world.faulty.broken_responses import BrokenResponse, FailureImpact, FailurePlan, break_response
from eclose.world.language.questions import read_question
from eclose.world.make.instances import WorldItem
from eclose.world.make.solve import solve
from eclose.world.oracle.evidence import read_evidence
from eclose.world.roles.constructor import register_constructor
from eclose.world.roles.gullible_judges import JudgeTrust, make_gullible
from eclose.world.roles.judge import register_judge
from eclose.world.roles.verifier import register_verifier
from eclose.world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply

PLANS_BY_NAME: dict[str, tuple[FailurePlan, ...]] = {
    **{code.value: tuple(FailurePlan(code, None, blow) for blow in FailureImpact) for code in LocalFailure},
    **{
        kind.value: (FailurePlan(None, kind),)
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
        if unknown := [name for name in self.rates if name not in PLANS_BY_NAME]:
            raise SettingError(f"there is no failure {unknown[0]!r}. Choose from: {', '.join(PLANS_BY_NAME)}.")
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


def build_world_registry(
    failures: FailureRates | None = None,
    seed: int = 0,
    *,
    judge_noise: float = 0.0,
    judge_trust: JudgeTrust | None = None,
    constructor_noise: float = 0.0,
    verifier_noise: float = 0.0,
) -> HandlerRegistry:
    """The handlers of the world. Its judge obeys nothing that it is shown, unless told whom to trust."""
    registry = HandlerRegistry()
    register_judge(registry, noise=judge_noise, seed=seed)
    if judge_trust is not None:
        registry = make_gullible(registry, judge_trust)
    register_constructor(registry, noise=constructor_noise, seed=seed)
    register_verifier(registry, noise=verifier_noise, seed=seed)
    registry.register(None, lambda request: generate_reply(request, failures or FailureRates(), seed))
    return registry


def generate_reply(request: ChatRequest, failures: FailureRates, seed: int) -> ScriptedReply:
    """A response to the question in the last turn; the same request always gets the same one."""
    found = parse_input(request.messages[-1]["content"])
    if found is None:
        raise BadRequest("the last message is not a question with passages as the response prompt writes them")
    question, passages = found
    target = read_question(question)
    solution = solve(target, read_evidence(passages)) if target is not None else None
    if target is None or solution is None:
        # A model says something even so; an honest one says that it does not know.
        return ScriptedReply("1. Let us read the passages.\nFinal answer: not determined")
    draw = f"{seed}/{request.key}"
    item = WorldItem(Instance(request.key, question, passages), target, solution, None, (), draw, ())
    completion = break_item_response(item, failures).response.completion
    assert completion is not None
    return ScriptedReply(completion)


def break_item_response(item: WorldItem, failures: FailureRates) -> BrokenResponse:
    """The item's response, failing as often and in such ways as asked.

    Where this item cannot fail that way the response stays reliable; ``asked`` says what was wanted.
    """
    rng = Random(f"{item.seed}/failure")
    asked = failures.draw(rng)
    plans = list(PLANS_BY_NAME[asked]) if asked else []
    rng.shuffle(plans)
    for plan in (*plans, FailurePlan()):
        if (made := break_response(item, plan, "failure")) is not None:
            return replace(made, asked=asked)
    raise AssertionError("a reliable response can always be made")
