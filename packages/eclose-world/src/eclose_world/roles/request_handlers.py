"""Request handlers of the world's model, one per kind of request, and the generation of responses.

Generation reads question and passages from the prompt, solves them, and breaks the response at the requested rates. The
handlers of the other roles are in ``judge``, ``detector``, ``constructor`` and ``verifier``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from eclose.errors import SettingError
from eclose.prompts.response_prompt import parse_question_message
from eclose.values.instance import Instance
from eclose.values.judgment import LocalFailure
from eclose.values.verdict import FailureClass
from eclose_world.faulty.broken_responses import BrokenResponse, FailureImpact, FailurePlan, break_response
from eclose_world.language.questions import parse_question
from eclose_world.make.instances import WorldItem
from eclose_world.make.solve import solve_question
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.roles.constructor import register_constructor_handlers
from eclose_world.roles.detector import answer_alignment, parse_alignment_question, register_detector_handlers
from eclose_world.roles.gullible_judges import GullibleJudgeKind, make_judges_gullible
from eclose_world.roles.judge import register_judge_handlers
from eclose_world.roles.verifier import register_verifier_handlers
from eclose_world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply

PLANS_BY_NAME: dict[str, tuple[FailurePlan, ...]] = {
    **{code.value: tuple(FailurePlan(code, None, impact) for impact in FailureImpact) for code in LocalFailure},
    **{
        kind.value: (FailurePlan(None, kind),)
        for kind in (FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING)
    },
}
"""Plans for each failure that can be requested by name."""


@dataclass(frozen=True, slots=True)
class ModelFailureRates:
    """Rates at which the model fails, by name of the failure."""

    rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse unknown failures, and rates outside 0 to 1 or with a sum above 1."""
        if unknown := [name for name in self.rates if name not in PLANS_BY_NAME]:
            raise SettingError(f"unknown failure {unknown[0]!r} (--failure). Choose from: {', '.join(PLANS_BY_NAME)}.")
        if not all(0 <= rate <= 1 for rate in self.rates.values()) or sum(self.rates.values()) > 1:
            raise SettingError("failure rates (--failure) must be between 0 and 1, and their sum at most 1.")

    def draw(self, rng: Random) -> str | None:
        """Draw the failure of the next response, None for none."""
        roll = rng.random()
        for name, rate in self.rates.items():
            if roll < rate:
                return name
            # Cumulative rates without building their sums.
            roll -= rate
        return None


def build_world_handlers(
    failures: ModelFailureRates | None = None,
    seed: int = 0,
    *,
    judge_noise: float = 0.0,
    judge_trust: GullibleJudgeKind | None = None,
    constructor_noise: float = 0.0,
    verifier_noise: float = 0.0,
    detector_noise: float = 0.0,
) -> HandlerRegistry:
    """Return a registry with all handlers of the world.

    ``judge_trust`` makes the judge obey orders in the texts it is shown; by default it ignores them.
    """
    registry = HandlerRegistry()
    register_judge_handlers(registry, noise=judge_noise, seed=seed)
    # Wrapped before the other roles register: only judges obey orders.
    if judge_trust is not None:
        registry = make_judges_gullible(registry, judge_trust)
    register_constructor_handlers(registry, noise=constructor_noise, seed=seed)
    register_verifier_handlers(registry, noise=verifier_noise, seed=seed)
    register_detector_handlers(registry, noise=detector_noise, seed=seed)

    def write_plain_text(request: ChatRequest) -> ScriptedReply:
        # The question of alignment has no schema by which to tell it, because its score is in the first token.
        if (material := parse_alignment_question(request)) is not None:
            return answer_alignment(material, request, noise=detector_noise, seed=seed)
        return _generate_answer_reply(request, failures or ModelFailureRates(), seed)

    registry.register(None, write_plain_text)
    return registry


def _generate_answer_reply(request: ChatRequest, failures: ModelFailureRates, seed: int) -> ScriptedReply:
    """Reply to the question in the last message; equal requests get equal replies."""
    parsed = parse_question_message(request.messages[-1]["content"])
    if parsed is None:
        raise BadRequest("the last message is not a question with passages as the response prompt writes them")
    question, passages = parsed
    target = parse_question(question)
    solution = solve_question(target, parse_evidence_facts(passages)) if target is not None else None
    if target is None or solution is None:
        # The question is outside the grammar or has no single answer: abstain, as a model would.
        return ScriptedReply("1. Let us read the passages.\nFinal answer: not determined")
    # The key covers all the model sees, so a replica draws anew.
    draw = f"{seed}/{request.key}"
    item = WorldItem(
        instance=Instance(request.key, question, passages),
        target=target,
        solution=solution,
        plot=None,
        entities=(),
        seed=draw,
        words=(),
    )
    completion = break_response_at_rates(item, failures).response.completion
    assert completion is not None
    return ScriptedReply(completion)


ResponseBreakingFunction: TypeAlias = Callable[[WorldItem, FailurePlan, str], BrokenResponse | None]


def break_response_at_rates(
    item: WorldItem, failures: ModelFailureRates, break_item: ResponseBreakingFunction = break_response
) -> BrokenResponse:
    """Break the item's response at the given rates.

    Where the item does not admit the drawn failure, the response stays reliable; ``requested`` names the failure.
    """
    rng = Random(f"{item.seed}/failure")
    requested = failures.draw(rng)
    plans = list(PLANS_BY_NAME[requested]) if requested else []
    rng.shuffle(plans)
    # The reliable plan comes last and always succeeds.
    for plan in (*plans, FailurePlan()):
        if (broken := break_item(item, plan, "failure")) is not None:
            return replace(broken, requested=requested)
    raise AssertionError("a reliable response can always be made")
