"""Who builds and who checks: models, asked under the locked texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.structured import ask_structured
from eclose.construction.check_replies import find, objection
from eclose.construction.draft import Setback
from eclose.construction.settings import ConstructSettings
from eclose.models.interface import ChatModel
from eclose.protocol.construction import TargetCheck, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.core.family import FamilyFinding
    from eclose.protocol.construction import Role, Shown

INCOMPLETE = "incomplete"
"""The constructor says that it cannot be done with this material."""


@dataclass(frozen=True)
class Team:
    """A constructor and a verifier, better not of one family, and whoever checks what is finished."""

    constructor: ChatModel
    verifier: ChatModel
    settings: ConstructSettings
    reverifier: ChatModel | None = None
    """The verifier, unless somebody else is named."""
    again: bool = False
    """Whether they are asked once more."""

    @property
    def second(self) -> Team:
        """The same for the second check. What was said before is not looked up: the reply is drawn anew."""
        return replace(self, verifier=self.reverifier or self.verifier, again=True)

    async def construct(self, shown: Shown, read: Callable[[Mapping[str, Any]], Any], attempt: int) -> Any:
        """What the constructor made, as ``read`` understands it; a setback where it made nothing."""
        question = asked(shown)

        def complete(told: Mapping[str, Any]) -> Any:
            return read(told) if told["complete"] else Setback(question.name, INCOMPLETE, told["plan"])

        said = await ask_structured(
            self.constructor,
            question,
            complete,
            decoding=self.settings.decoding,
            attempts=self.settings.replies,
            replica=attempt,
        )
        return said.value if said.reason is None else Setback(question.name, said.reason, "no usable reply")

    async def judge(self, role: Role, shown: Shown, *, steps: int | None = None) -> FamilyFinding | Setback:
        """Return the verifier's finding if nothing objects, a setback otherwise."""
        support = shown.support if isinstance(shown, TargetCheck) else ()
        said = await ask_structured(
            self.verifier,
            asked(shown),
            partial(
                find,
                role,
                self.verifier.name,
                passages=len(shown.evidence),
                steps=steps,
                support=support,
                again=self.again,
            ),
            decoding=self.settings.second_decoding if self.again else self.settings.decoding,
            attempts=self.settings.replies,
            replica=int(self.again),
        )
        if said.reason is not None:
            return Setback(role, said.reason, "no usable reply")
        finding: FamilyFinding = said.value
        if finding.accepted:
            return finding
        return Setback(role, finding.objections[0], objection(finding, support), finding)
