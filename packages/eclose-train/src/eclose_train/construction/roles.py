"""Models in their roles: a constructor writes candidates, a verifier checks them, both under the locked guidelines.

``ACCEPTANCE_CONDITIONS`` lists the value each judgement of a verifier must have, and every judgement counts by itself.
For a target response the map of steps to passages is checked as well (R_E, appendix B.3): it must be complete, and
every step must rest on the support, even where the reply calls the response grounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.model import ChatModel
from eclose.calls.structured import ask_structured
from eclose.prompts.structured import InconsistentReplyError
from eclose.values.family import FamilyFinding
from eclose.values.family_rules import MIN_SUPPORTING_PASSAGES
from eclose_train.construction.candidates import CandidateRejection
from eclose_train.construction.questions import (
    ROLE_OF_MATERIAL,
    SOUNDNESS_JUDGEMENT,
    ConstructionRole,
    TargetCheckMaterial,
    build_construction_prompt,
    find_objections,
)
from eclose_train.construction.settings import ConstructSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose_train.construction.questions import ConstructionMaterial

SUPPORT_MAP = "grounding.support_map"
"""Objection to steps that rest only on passages outside the support."""


def parse_check_reply(
    role: ConstructionRole,
    judge: str,
    reply: Mapping[str, Any],
    *,
    passages: int,
    steps: int | None = None,
    support: Sequence[int] = (),
    again: bool = False,
) -> FamilyFinding:
    """Return the finding of a reply to a prompt with so many passages and steps, None for a role that sees no steps.

    Raises:
        InconsistentReplyError: The reply names passages or steps that were not shown, contradicts itself, or leaves the
            map of steps to passages incomplete. The model is asked again.
    """
    # Passages are named as a source's support, and for a step.
    named = [*reply.get("support", ()), *(index for entry in _steps(reply) for index in entry.get("passages", ()))]
    if wrong := [index for index in named if not 0 <= index < passages]:
        raise InconsistentReplyError("no such passage", f"there are no passages {wrong} among {passages}.")
    # Indices and ids are checked before judgements: a reply that mixes them up judged something else.
    objections = [*_unsound(reply, steps), *find_objections(role, reply), *_unfit(role, reply)]
    if role is ConstructionRole.VERIFY_TARGET:
        _refuse_contradiction(reply)
        _refuse_incomplete_map(reply)
        if any(_outside_support(reply, support)):
            objections.append(SUPPORT_MAP)
    return FamilyFinding(role, judge, reply, tuple(objections), again)


def describe_objections(finding: FamilyFinding, support: Sequence[int] = ()) -> str:
    """Return the judgements that object, each with its reason, for the constructor's next attempt."""
    reasons = ((name, _reason(finding.said, name, support)) for name in finding.objections)
    return "; ".join(f"{name}: {reason}" if reason else name for name, reason in reasons)


def _steps(reply: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = reply.get(SOUNDNESS_JUDGEMENT, {}).get("steps", ())
    return entries


def _unfit(role: ConstructionRole, reply: Mapping[str, Any]) -> Iterator[str]:
    """Yield the defect of a source, and ``support`` where fewer than two passages support it."""
    if role is ConstructionRole.SCREEN_SEED:
        if reply["defect"] is not None:
            yield str(reply["defect"])
        if len(set(reply["support"])) < MIN_SUPPORTING_PASSAGES:
            yield "support"


def _unsound(reply: Mapping[str, Any], steps: int | None) -> Iterator[str]:
    if steps is None:
        return
    ids = sorted(entry["id"] for entry in _steps(reply))
    if ids != list(range(1, steps + 1)):
        raise InconsistentReplyError("wrong step ids", f"asked about {steps} steps, told about {ids}.")
    if any(not entry["sound"] for entry in _steps(reply)):
        yield SOUNDNESS_JUDGEMENT


# The map of a target's steps to passages and earlier steps (R_E, appendix B.3).


def _refuse_contradiction(reply: Mapping[str, Any]) -> None:
    outside, ids = reply["grounding"]["outside"], {entry["id"] for entry in _steps(reply)}
    if wrong := sorted(set(outside) - ids):
        raise InconsistentReplyError(
            "wrong step ids", f"steps {wrong} are called outside the support and do not exist."
        )
    # Asked again rather than decided here: neither of the two statements is more credible.
    if outside and reply["grounding"]["grounded"]:
        raise InconsistentReplyError("contradictory grounding", "steps outside the support, and yet grounded in it.")


def _refuse_incomplete_map(reply: Mapping[str, Any]) -> None:
    """Raise unless every sound step rests on a passage or on an earlier step."""
    for entry in _steps(reply):
        number = entry["id"]
        if any(not 1 <= premise < number for premise in entry["premises"]):
            raise InconsistentReplyError("wrong premises", f"step {number} rests on steps {entry['premises']}.")
        if entry["sound"] and not entry["passages"] and not entry["premises"]:
            raise InconsistentReplyError(
                "incomplete support map", f"step {number} is called sound and rests on no passage and no earlier step."
            )


def _outside_support(reply: Mapping[str, Any], support: Sequence[int]) -> list[int]:
    """Return the ids of the steps whose passages all lie outside the support."""
    return [
        entry["id"] for entry in _steps(reply) if entry["passages"] and not set(entry["passages"]).intersection(support)
    ]


def _reason(reply: Mapping[str, Any], name: str, support: Sequence[int]) -> str:
    """Return the reason given for a judgement: that of its section of the reply, or that of the reply."""
    if name == SOUNDNESS_JUDGEMENT:
        broken = (entry for entry in _steps(reply) if not entry["sound"])
        return ", ".join(f"step {entry['id']}: {entry['reason']}" for entry in broken)
    if name == SUPPORT_MAP:
        return ", ".join(
            f"step {number} rests on passages outside the support alone" for number in _outside_support(reply, support)
        )
    section = reply.get(name.partition(".")[0])
    return str((section if isinstance(section, Mapping) else reply).get("reason", ""))


INCOMPLETE = "incomplete"
"""Reason of a setback where the constructor reports that this material allows no candidate."""


@dataclass(frozen=True)
class ConstructionTeam:
    """The models of a run with its settings; constructor and verifier are best of different model families."""

    constructor: ChatModel
    verifier: ChatModel
    settings: ConstructSettings
    reverifier: ChatModel | None = None
    """Model of the second check; the verifier by default."""
    second_check: bool = False
    """Whether findings belong to the second check of a finished family."""

    @property
    def for_second_check(self) -> ConstructionTeam:
        """The team for the second check: its replies are drawn again instead of read from the cache."""
        return replace(self, verifier=self.reverifier or self.verifier, second_check=True)

    async def construct(
        self, material: ConstructionMaterial, parse: Callable[[Mapping[str, Any]], Any], attempt: int
    ) -> Any:
        """Ask the constructor for a candidate; each attempt draws a reply of its own.

        Returns the parsed candidate, or a setback where the constructor wrote none.
        """
        prompt = build_construction_prompt(material)

        def parse_complete(reply: Mapping[str, Any]) -> Any:
            # The completion indicator Q of appendix B: a constructor may report that the material allows no candidate.
            return parse(reply) if reply["complete"] else CandidateRejection(prompt.name, INCOMPLETE, reply["plan"])

        answer = await ask_structured(
            self.constructor,
            prompt,
            parse_complete,
            decoding=self.settings.decoding,
            attempts=self.settings.replies,
            replica=attempt,
        )
        return (
            answer.value if answer.reason is None else CandidateRejection(prompt.name, answer.reason, "no usable reply")
        )

    async def judge(self, *materials: ConstructionMaterial) -> tuple[FamilyFinding, ...] | CandidateRejection:
        """Return the verifier's finding on each material; a setback at the first judgement that objects."""
        findings = []
        for material in materials:
            finding = await self._judge(material)
            if isinstance(finding, CandidateRejection):
                return finding
            findings.append(finding)
        return tuple(findings)

    async def _judge(self, material: ConstructionMaterial) -> FamilyFinding | CandidateRejection:
        role = ConstructionRole(ROLE_OF_MATERIAL[type(material)])
        support = material.support if isinstance(material, TargetCheckMaterial) else ()
        # A verifier judges the steps of the edited response where there is one.
        steps = getattr(material, "edited_steps", getattr(material, "steps", None))
        answer = await ask_structured(
            self.verifier,
            build_construction_prompt(material),
            partial(
                parse_check_reply,
                role,
                self.verifier.name,
                passages=len(material.evidence),
                steps=None if steps is None else len(steps),
                support=support,
                again=self.second_check,
            ),
            # The second check draws again: another temperature, and another replica in the cache.
            decoding=self.settings.second_decoding if self.second_check else self.settings.decoding,
            attempts=self.settings.replies,
            replica=int(self.second_check),
        )
        if answer.reason is not None:
            return CandidateRejection(role, answer.reason, "no usable reply")
        finding: FamilyFinding = answer.value
        if finding.accepted:
            return finding
        # Counted under the first objection; the constructor sees all of them.
        return CandidateRejection(role, finding.objections[0], describe_objections(finding, support), finding)
