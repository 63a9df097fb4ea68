"""Turn conversations into tokens for a model in this process, and its new tokens into a reply.

The same for every engine, and the same bytes that training scores; the engines only choose the next token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError
from eclose.models.interface import FinishReason, Reply, Request, Usage
from eclose.models.weights import read_reply_turn, render_conversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PromptTooLongError(UserError):
    """A prompt that leaves no room for a reply; ``place`` says which request it was."""

    def __init__(self, place: int, tokens: int, context: int) -> None:
        self.place = place
        super().__init__(
            f"request {place + 1}: {tokens:,} prompt tokens leave no room in the {context:,} this model can hold. "
            "Leave it out or shorten its evidence; nothing is cut to fit."
        )


def tokenize_prompt(tokenizer: Any, request: Request) -> list[int]:
    """Return the tokens of a conversation up to the reply: no thinking, the reply's opening included."""
    if request.schema is not None:
        raise SettingError(
            f"{request.schema.name}: a model in this process writes free text. Use a server for a schema."
        )
    if request.decoding.top_logprobs is not None:
        raise SettingError("top_logprobs: a model in this process reports no log-probabilities. Use a server for them.")
    text = render_conversation(tokenizer, request.messages)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def limit_new_tokens(prompts: Sequence[Sequence[int]], requests: Sequence[Request], context: int) -> list[int]:
    """How many new tokens each request may have: what it asks for, or what the context leaves."""
    for place, ids in enumerate(prompts):
        if len(ids) >= context:
            raise PromptTooLongError(place, len(ids), context)
    return [
        min(request.decoding.max_tokens, context - len(ids)) for ids, request in zip(prompts, requests, strict=True)
    ]


def find_stop_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """Return every token that ends a turn: those of tokenizer and generation settings, and the template's own."""
    published = getattr(generation_config, "eos_token_id", None)
    listed: Iterable[int | None] = published if isinstance(published, (list, tuple)) else [published]
    trained: list[int | None] = []
    if getattr(tokenizer, "chat_template", None):
        trained = [tokenizer.convert_tokens_to_ids(read_reply_turn(tokenizer).end_token)]
    stops = frozenset(token for token in (*listed, tokenizer.eos_token_id, *trained) if token is not None)
    if not stops:
        raise UserError("neither tokenizer nor model names an end-of-turn token, so no reply would ever end.")
    return stops


def load_generation_settings(name: str, revision: str | None) -> Any:
    """The generation settings a model is published with; many have none."""
    from transformers import GenerationConfig  # noqa: PLC0415 - heavy

    settings: dict[str, Any] = {} if revision is None else {"revision": revision}
    try:
        return GenerationConfig.from_pretrained(name, **settings)
    except OSError:
        return None


def read_reply(tokenizer: Any, prompt: Sequence[int], new: Sequence[int], stops: frozenset[int]) -> Reply:
    """New tokens up to the first that ends the turn, which is counted but not part of the text."""
    end = next((place for place, token in enumerate(new) if token in stops), None)
    spoken = new if end is None else new[:end]
    # Left as the model wrote it: tidying blanks before full stops would change bytes.
    text: str = tokenizer.decode(list(spoken), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    written = len(new) if end is None else end + 1
    return Reply(text, FinishReason.LENGTH if end is None else FinishReason.STOP, Usage(len(prompt), written))
