"""The provider of the models in logs that ``data to-inspect`` writes, so that Inspect can open and score them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, modelapi

from eclose.errors import UserError
from eclose.integrations.inspect.model import PROVIDER

if TYPE_CHECKING:
    from inspect_ai.tool import ToolChoice, ToolInfo


class RecordedModel(ModelAPI):
    """A model whose responses are recorded in a log; it gives no others."""

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002, ARG002 - as Inspect calls it
        tools: list[ToolInfo],  # noqa: ARG002
        tool_choice: ToolChoice,  # noqa: ARG002
        config: GenerateConfig,  # noqa: ARG002
    ) -> ModelOutput:
        """Refuse: there is no model behind the name."""
        raise UserError(f"{self.model_name}: only its recorded responses are here. Name a model to ask with --model.")


@modelapi(PROVIDER)
def recorded() -> type[ModelAPI]:
    """Return the provider, for Inspect's registry."""
    return RecordedModel
