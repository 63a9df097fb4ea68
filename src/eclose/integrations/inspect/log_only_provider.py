"""The provider of the models in exported logs, by which Inspect can open and score these logs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, modelapi

from eclose.errors import UserError
from eclose.integrations.inspect.model import UNCALLABLE_PROVIDER

if TYPE_CHECKING:
    from inspect_ai.tool import ToolChoice, ToolInfo


class UncallableModel(ModelAPI):
    """A model with recorded responses only; it generates none."""

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002, ARG002 - as Inspect calls it
        tools: list[ToolInfo],  # noqa: ARG002
        tool_choice: ToolChoice,  # noqa: ARG002
        config: GenerateConfig,  # noqa: ARG002
    ) -> ModelOutput:
        """Raise UserError, because no model can be called."""
        raise UserError(f"{self.model_name}: has recorded responses only. Name a model to call with --model.")


@modelapi(UNCALLABLE_PROVIDER)
def uncallable_model_provider() -> type[ModelAPI]:
    """Return the provider class for the registry of Inspect."""
    return UncallableModel
