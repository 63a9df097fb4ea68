"""Check that a served adapter changes the replies of its base model.

Some servers accept the name of an adapter and answer with the base model. Replies to one short prompt are compared by
text and by log-probabilities.
"""

from __future__ import annotations

import secrets
from math import inf
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.models.interface import Decoding, Request
from eclose.models.openai.failures import CallFailure, CallFailureKind
from eclose.protocol.response_prompt import ResponsePrompt, load_demonstrations

if TYPE_CHECKING:
    from eclose.models.interface import ChatModel, Reply

# Enough tokens to show a difference; the three probes are paid for like any other call.
PROBE_TOKENS = 16
_UNABLE = frozenset({CallFailureKind.INVALID, CallFailureKind.PERMANENT})
"""Failures of servers that cannot report log-probabilities."""


async def refuse_ineffective_adapter(adapted: ChatModel, base: ChatModel) -> None:
    """Raise where the adapter differs from its base no more than the base differs from itself. Sends three new calls.

    Where the base itself replies in two ways to the same prompt, nothing can be told, and the adapter is accepted.
    """
    # The base is asked first and last: prefix caches and batching move a server's own log-probabilities a little,
    # and that difference is the noise an adapter has to exceed.
    first, changed, last = await _probe(base), await _probe(adapted), await _probe(base)
    noise = _distance(first, last)
    if noise < inf and _distance(first, changed) <= noise:
        raise UserError(
            f"{adapted.name}: replies exactly like {base.name}, so the server does not apply the adapter. "
            "Start the server with the adapter, or leave out --base-model to use the model as it is."
        )


def _distance(reply: Reply, other: Reply) -> float:
    """Return the largest difference between log-probabilities of the same tokens; infinity where the texts differ."""
    if reply.text != other.text:
        return inf
    pairs = zip(reply.logprobs or (), other.logprobs or (), strict=False)
    return max((abs(token.logprob - other_token.logprob) for token, other_token in pairs), default=0.0)


async def _probe(model: ChatModel) -> Reply:
    """Return the first ``PROBE_TOKENS`` of a reply, with log-probabilities where the server reports them."""
    try:
        return await _reply(model, top_logprobs=1)
    except CallFailure as failure:
        if failure.kind not in _UNABLE:
            raise
        # Without log-probabilities the texts are compared alone: an adapter that changes none of the words is refused.
        return await _reply(model, top_logprobs=None)


async def _reply(model: ChatModel, top_logprobs: int | None) -> Reply:
    example = load_demonstrations()[0]
    request = Request(
        tuple(ResponsePrompt(0).messages(example.question, example.evidence)),
        Decoding(max_tokens=PROBE_TOKENS, top_logprobs=top_logprobs),
        # A random replica makes a new call each time: a cached reply says nothing about the server running now.
        replica=secrets.randbits(31),
    )
    try:
        return await model.complete(request)
    except CallFailure as failure:
        # A reply cut off at PROBE_TOKENS is the expected outcome.
        if failure.kind is CallFailureKind.LENGTH and failure.reply is not None:
            return failure.reply
        raise
