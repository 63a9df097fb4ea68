"""Proof that a served adapter is really applied: it and its base do not say the same with the same certainty.

Servers have been known to take the name of an adapter and answer with the base model.
"""

from __future__ import annotations

import secrets
from math import inf
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.models.interface import Decoding, Request
from eclose.models.openai.failures import CallFailure, FailureKind
from eclose.protocol.response_prompt import ResponsePrompt, demonstrations

if TYPE_CHECKING:
    from eclose.models.interface import ChatModel, Reply

PROBE_TOKENS = 16
_UNABLE = frozenset({FailureKind.INVALID, FailureKind.PERMANENT})
"""How servers answer that report no log-probabilities."""


async def refuse_idle_adapter(adapted: ChatModel, base: ChatModel) -> None:
    """Raise unless an adapter is further from its base than the base is from itself. All are asked anew each time."""
    # The base comes first and last: a server's cache, or its batches, may move its own numbers a little.
    once, changed, again = await _said(base), await _said(adapted), await _said(base)
    if not _distance(once, changed) > _distance(once, again):
        raise UserError(
            f"{adapted.name}: cannot be told from {base.name} by what it says, so the adapter is not applied. "
            "Start the server with it, or leave --base-model out to ask the model as it is."
        )


def _distance(one: Reply, other: Reply) -> float:
    """By how much the log-probabilities of the same words differ at most; without end where the words differ."""
    if one.text != other.text:
        return inf
    pairs = zip(one.logprobs or (), other.logprobs or (), strict=False)
    return max((abs(first.logprob - second.logprob) for first, second in pairs), default=0.0)


async def _said(model: ChatModel) -> Reply:
    """The beginning of a reply, with log-probabilities where the server reports them."""
    try:
        return await _reply(model, top_logprobs=1)
    except CallFailure as failure:
        if failure.kind not in _UNABLE:
            raise
        return await _reply(model, top_logprobs=None)


async def _reply(model: ChatModel, top_logprobs: int | None) -> Reply:
    example = demonstrations()[0]
    request = Request(
        tuple(ResponsePrompt(0).messages(example.question, example.evidence)),
        Decoding(max_tokens=PROBE_TOKENS, top_logprobs=top_logprobs),
        # What was said before a restart proves nothing about the server that is running now.
        replica=secrets.randbits(31),
    )
    try:
        return await model.complete(request)
    except CallFailure as failure:
        if failure.kind is FailureKind.LENGTH and failure.reply is not None:
            return failure.reply
        raise
