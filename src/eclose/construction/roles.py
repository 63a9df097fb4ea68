"""Models in their roles: a constructor writes candidates, a verifier checks them, both under the locked guidelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.structured import ask_structured
from eclose.construction.check_replies import describe_objections, parse_finding
from eclose.construction.family_draft import Setback
from eclose.construction.settings import ConstructSettings
from eclose.models.interface import ChatModel
from eclose.protocol.construction import TargetCheck, build_construction_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.core.family import FamilyFinding
    from eclose.protocol.construction import ConstructionMaterial, ConstructionRole

INCOMPLETE = "incomplete"
"""Reason of a setback where the constructor reports that this material allows no candidate."""


@dataclass(frozen=True)
class ModelTeam:
    """The models of a run with its settings; constructor and verifier are best of different model families."""

    constructor: ChatModel
    verifier: ChatModel
    settings: ConstructSettings
    reverifier: ChatModel | None = None
    """Model of the second check; the verifier by default."""
    second_check: bool = False
    """Whether findings belong to the second check of a finished family."""

    @property
    def for_second_check(self) -> ModelTeam:
        """The team for the second check: its replies are drawn again instead of read from the cache."""
        return replace(self, verifier=self.reverifier or self.verifier, second_check=True)

    async def construct(
        self, material: ConstructionMaterial, parse: Callable[[Mapping[str, Any]], Any], attempt: int
    ) -> Any:
        """Ask the constructor for a candidate.

        Args:
            material: Material of the prompt.
            parse: Parses the reply into the candidate.
            attempt: Number of the attempt; each draws a reply of its own.

        Returns:
            The parsed candidate, or a setback where the constructor wrote none.
        """
        prompt = build_construction_prompt(material)

        def parse_complete(reply: Mapping[str, Any]) -> Any:
            # The completion indicator Q of appendix B: a constructor may report that the material allows no candidate.
            return parse(reply) if reply["complete"] else Setback(prompt.name, INCOMPLETE, reply["plan"])

        answer = await ask_structured(
            self.constructor,
            prompt,
            parse_complete,
            decoding=self.settings.decoding,
            attempts=self.settings.replies,
            replica=attempt,
        )
        return answer.value if answer.reason is None else Setback(prompt.name, answer.reason, "no usable reply")

    async def judge(
        self, role: ConstructionRole, material: ConstructionMaterial, *, steps: int | None = None
    ) -> FamilyFinding | Setback:
        """Return the verifier's finding if no judgement objects, a setback otherwise."""
        support = material.support if isinstance(material, TargetCheck) else ()
        answer = await ask_structured(
            self.verifier,
            build_construction_prompt(material),
            partial(
                parse_finding,
                role,
                self.verifier.name,
                passages=len(material.evidence),
                steps=steps,
                support=support,
                again=self.second_check,
            ),
            # The second check draws again: another temperature, and another replica in the cache.
            decoding=self.settings.second_decoding if self.second_check else self.settings.decoding,
            attempts=self.settings.replies,
            replica=int(self.second_check),
        )
        if answer.reason is not None:
            return Setback(role, answer.reason, "no usable reply")
        finding: FamilyFinding = answer.value
        if finding.accepted:
            return finding
        # Counted under the first objection; the constructor sees all of them.
        return Setback(role, finding.objections[0], describe_objections(finding, support), finding)
