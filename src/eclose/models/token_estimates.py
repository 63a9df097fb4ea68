"""Token counts of requests without a tokenizer: an upper bound, and an estimate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

from eclose.models.interface import Request, TokenUsage

TokenCount: TypeAlias = Callable[[str], int]
"""A function that counts the tokens of a text, such as a tokenizer's own count."""
_PER_MESSAGE = 16
"""Tokens a chat template may add to a turn: roles, separators, a date."""
_WORDS = re.compile(r"[A-Za-z ]+")


def bound_token_count(text: str) -> int:
    """Return an upper bound of the tokens of a text: its bytes in UTF-8, about four times the count for English."""
    return len(text.encode("utf-8", "surrogatepass"))


def estimate_token_count(text: str) -> int:
    """Return about the tokens of a text, usually a quarter too many and rarely too few."""
    # Three letters or blanks make a token; every digit, sign and byte of another script counts as one.
    letters = sum(len(run) for run in _WORDS.findall(text))
    return -(-letters // 3) + len(text.encode("utf-8", "surrogatepass")) - letters


def bound_request_usage(request: Request, count: TokenCount = bound_token_count) -> TokenUsage:
    """Return the tokens of a request and of the longest reply it allows."""
    prompt = sum(count(message["content"]) + _PER_MESSAGE for message in request.messages)
    if request.schema is not None:
        prompt += count(json.dumps(dict(request.schema.schema))) + _PER_MESSAGE
    return TokenUsage(prompt, request.decoding.max_tokens)
