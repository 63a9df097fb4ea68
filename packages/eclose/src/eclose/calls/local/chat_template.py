"""Convert conversations to prompt tokens for a model in this process, and its new tokens to a reply.

Every engine uses these functions, and training scores the same bytes; an engine only chooses the next token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.calls.local.weights import read_turn_markers, render_conversation
from eclose.calls.model import FinishReason, Reply, Request, TokenUsage
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PromptTooLongError(UserError):
    """A prompt that leaves no room for a reply; ``index`` is its position among the requests."""

    def __init__(self, index: int, tokens: int, context: int) -> None:
        self.index = index
        self._arguments = index, tokens, context
        super().__init__(
            f"request {index + 1}: {tokens:,} prompt tokens leave no room for a reply in a context of {context:,}. "
            "Leave the question out or shorten its evidence: prompts are never truncated."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process makes the same error from; by default it would get the message alone."""
        return type(self), self._arguments


def tokenize_prompt(tokenizer: Any, request: Request) -> list[int]:
    """Return the tokens of a conversation up to the reply: no thinking, the reply's opening included."""
    if request.schema is not None:
        raise SettingError(
            f"{request.schema.name}: a model in this process cannot follow a JSON schema. Use a model server."
        )
    if request.decoding.top_logprobs is not None:
        raise SettingError("top_logprobs: a model in this process reports no log-probabilities. Use a model server.")
    text = render_conversation(tokenizer, request.messages)
    # The rendered template holds the special tokens already; many tokenizers would add a second one at the start.
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def limit_new_tokens(prompts: Sequence[Sequence[int]], requests: Sequence[Request], context: int) -> list[int]:
    """Return the limit of new tokens for each request: ``max_tokens``, or less where the context ends before."""
    # All prompts are checked before any is answered: a batch fails before it costs time.
    for index, ids in enumerate(prompts):
        if len(ids) >= context:
            raise PromptTooLongError(index, len(ids), context)
    return [
        min(request.decoding.max_tokens, context - len(ids)) for ids, request in zip(prompts, requests, strict=True)
    ]


def find_stop_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """Return the ids of all tokens that end a turn, from the tokenizer, generation settings and chat template."""
    eos_ids = getattr(generation_config, "eos_token_id", None)
    listed: Iterable[int | None] = eos_ids if isinstance(eos_ids, (list, tuple)) else [eos_ids]
    # Some models are trained on a template whose last token is listed in neither of the other two places.
    template_ids: list[int | None] = []
    if getattr(tokenizer, "chat_template", None):
        template_ids = [tokenizer.convert_tokens_to_ids(read_turn_markers(tokenizer).end_token)]
    stops = frozenset(token for token in (*listed, tokenizer.eos_token_id, *template_ids) if token is not None)
    if not stops:
        raise UserError("neither tokenizer nor model names an end-of-turn token. Choose another model.")
    return stops


def load_published_generation_config(name: str, revision: str | None) -> Any:
    """Return the generation settings that a model is published with; None where there are none."""
    from transformers import GenerationConfig  # noqa: PLC0415 - heavy

    settings: dict[str, Any] = {} if revision is None else {"revision": revision}
    try:
        return GenerationConfig.from_pretrained(name, **settings)
    except OSError:
        return None


def decode_reply_tokens(tokenizer: Any, prompt: Sequence[int], new: Sequence[int], stops: frozenset[int]) -> Reply:
    """Return the reply from new tokens up to the first end token, which is counted but not part of the text."""
    end = next((index for index, token in enumerate(new) if token in stops), None)
    text_ids = new if end is None else new[:end]
    # Cleaning up spaces would change bytes, and training scores the text as the model wrote it.
    text: str = tokenizer.decode(list(text_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    completion_tokens = len(new) if end is None else end + 1
    return Reply(
        text, FinishReason.LENGTH if end is None else FinishReason.STOP, TokenUsage(len(prompt), completion_tokens)
    )
