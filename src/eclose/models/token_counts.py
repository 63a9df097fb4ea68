"""Token counts of requests without a tokenizer: an upper bound, and an estimate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

from eclose.models.interface import Request, Usage

TokenCount: TypeAlias = Callable[[str], int]
"""Tokens of a text; a tokenizer's own count fits here."""


_PER_MESSAGE = 16
"""Tokens a chat template may add to a turn: roles, separators, a date."""


_WORDS = re.compile(r"[A-Za-z ]+")


def bound_tokens(text: str) -> int:
    """No tokenizer makes more tokens than bytes: a bound, some four times too high for English."""
    return len(text.encode("utf-8", "surrogatepass"))


def estimate_tokens(text: str) -> int:
    """A third of the letters, and every digit, sign and foreign byte as one: high by a quarter or so, seldom low."""
    letters = sum(len(run) for run in _WORDS.findall(text))
    return -(-letters // 3) + len(text.encode("utf-8", "surrogatepass")) - letters


def bound_usage(request: Request, count: TokenCount = bound_tokens) -> Usage:
    """The tokens of a request and of the longest reply it allows."""
    prompt = sum(count(message["content"]) + _PER_MESSAGE for message in request.messages)
    if request.schema is not None:
        prompt += count(json.dumps(dict(request.schema.schema))) + _PER_MESSAGE
    return Usage(prompt, request.decoding.max_tokens)
