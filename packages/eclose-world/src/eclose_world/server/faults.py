"""Faults and noise of the scripted model, which depend on no clock and no state.

Noise in a reply is a pure function of seed and request, and a fault of seed, request and attempt. A run that is
interrupted and resumed therefore gets the same replies as one that is not, on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from eclose.errors import SettingError
from eclose.values.identity import hash_sort_key
from eclose_world.server.chat_requests import ScriptedReply

_YES_OR_NO = re.compile(r"^(\W*)(yes|no)(\W*)$", re.IGNORECASE)
_REFUSAL = "I'm sorry, but I can't help with that."
_OFF_FORMAT = "Sure! Here is what you asked for:"


class ServerFault(StrEnum):
    """One way in which a request fails."""

    RATE_LIMIT = "rate_limit"
    """429 with Retry-After."""
    SERVER_ERROR = "server_error"
    """500."""
    UNAVAILABLE = "unavailable"
    """503."""
    BAD_GATEWAY = "bad_gateway"
    """502 with an HTML page, as a proxy sends it."""
    HTML = "html"
    """200 with an HTML page, as a login wall sends it."""
    DROP = "drop"
    """The connection closes before the headers."""
    HANG = "hang"
    """No answer until the client leaves or ``hang_seconds`` are over; then the connection closes."""
    TRUNCATED = "truncated"
    """The content stops in the middle, with finish_reason ``length``."""
    MALFORMED = "malformed"
    """The content is not JSON, with finish_reason ``stop``; a text reply does not have the requested format."""
    WRONG_SHAPE = "wrong_shape"
    """The content is JSON of another shape than the one asked for."""
    REFUSAL = "refusal"
    """A refusal instead of content."""
    EMPTY = "empty"
    """Empty content."""
    SLOW = "slow"
    """A good reply whose body is sent in small parts over ``slow_seconds``."""
    CUT = "cut"
    """A good reply whose connection closes in the middle of the body."""
    GZIP_PAGE = "gzip_page"
    """502 with an HTML page that is gzip-compressed though no compression was asked for."""
    GZIP = "gzip"
    """A good reply, gzip-compressed though no compression was asked for."""
    ENCODED = "encoded"
    """A good reply under a Content-Encoding that no client knows."""
    OVERSIZED = "oversized"
    """200 with a JSON body of ``oversized_bytes`` bytes."""
    BOMB = "bomb"
    """200 with a gzip body that is small on the wire and ``oversized_bytes`` bytes when it is decoded."""

    @property
    def paid(self) -> bool:
        """Whether the model answered with 200, so that a provider would charge for it. A proxy's page is free."""
        return self in _PAID


_PAID = frozenset(
    {
        ServerFault.TRUNCATED,
        ServerFault.MALFORMED,
        ServerFault.WRONG_SHAPE,
        ServerFault.REFUSAL,
        ServerFault.EMPTY,
        ServerFault.SLOW,
        ServerFault.CUT,
        ServerFault.GZIP,
        ServerFault.ENCODED,
        ServerFault.OVERSIZED,
        ServerFault.BOMB,
    }
)


def hash_to_unit_interval(*parts: str | int) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    # 13 hex digits are 52 bits, which a float holds exactly.
    return int(hash_sort_key(*parts)[:13], 16) / 16**13


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBehaviour:
    """Noise, faults and delays of the server; by default it is fast, exact and reliable."""

    seed: int = 0
    flip_rate: float = 0.0
    """Rate at which labels of a reply are inverted: JSON booleans, and the Yes or No of a first token."""
    faults: Mapping[ServerFault, float] = field(default_factory=dict)
    """Rate of each fault; at most one fault happens to an attempt, so the sum is at most 1."""
    max_faults_per_key: int = 3
    """Only the first attempts of a request can fail, so a client that retries gets through."""
    retry_after: float = 1.0
    """Seconds of the Retry-After header of a 429."""
    retry_after_as_date: bool = False
    """Whether Retry-After is a date instead of seconds; providers send both."""
    slow_seconds: float = 2.0
    """Seconds that a slow body takes."""
    hang_seconds: float = 60.0
    """Seconds until a hanging connection closes."""
    oversized_bytes: int = 16 * 2**20
    """Bytes of an oversized body after decoding."""
    latency: float = 0.0
    """Seconds before every reply; a 429 is sent at once."""
    jitter: float = 0.0
    """Largest additional delay, in seconds."""
    max_concurrency: int | None = None
    """Largest number of requests under way; one more gets a 429, which does not count as an attempt."""
    prompt_cache: int | None = None
    """Tokens of four characters of the shortest prefix that the prompt cache keeps; None for no cache."""

    def __post_init__(self) -> None:
        if problems := self._problems():
            raise SettingError(" ".join(problems))

    def _problems(self) -> list[str]:
        unknown = [str(name) for name in self.faults if name not in set(ServerFault)]
        rates = {"flip_rate": self.flip_rate, **{str(name): rate for name, rate in self.faults.items()}}
        amounts = (
            "max_faults_per_key", "retry_after", "slow_seconds", "hang_seconds", "oversized_bytes", "latency", "jitter"
        )  # fmt: skip
        problems = [f"unknown fault {name!r}: use {', '.join(ServerFault)}." for name in unknown]
        problems += [
            f"{name} = {rate}: a rate lies between 0 and 1." for name, rate in rates.items() if not _rate(rate)
        ]
        problems += [f"{name} must not be negative." for name in amounts if not getattr(self, name) >= 0]
        if sum(self.faults.values()) > 1 + 1e-9:
            problems.append("the rates of all faults add up to more than 1.")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            problems.append("max_concurrency must be at least 1.")
        return problems

    def draw_fault(self, key: str, attempt: int) -> ServerFault | None:
        """Return the fault of an attempt, counted from 1; None where the attempt succeeds."""
        if not self.faults or attempt > self.max_faults_per_key:
            return None
        remaining = hash_to_unit_interval("fault", self.seed, key, attempt)
        # Cumulative rates, in the order of definition.
        for fault in ServerFault:
            remaining -= self.faults.get(fault, 0.0)
            if remaining < 0:
                return fault
        return None

    def draw_delay(self, key: str, attempt: int) -> float:
        """Return the seconds until the server answers an attempt."""
        if not self.jitter:
            return self.latency
        return self.latency + self.jitter * hash_to_unit_interval("delay", self.seed, key, attempt)

    def flip_labels(self, reply: ScriptedReply, key: str) -> ScriptedReply:
        """Return the reply with some labels inverted; every attempt of a request gets the same reply."""
        if not self.flip_rate:
            return reply
        if not isinstance(reply.content, str):
            return replace(reply, content=self._flip_leaves(reply.content, key, ()))
        if reply.first_token is not None and self._flips(key, ("first_token",)):
            return _swap_first_token(reply)
        return reply

    def _flip_leaves(self, value: Any, key: str, path: tuple[str | int, ...]) -> Any:
        # The path of a label is part of the hash, so labels are inverted independently of each other.
        if isinstance(value, bool):
            return value ^ self._flips(key, path)
        if isinstance(value, Mapping):
            return {name: self._flip_leaves(part, key, (*path, name)) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._flip_leaves(part, key, (*path, index)) for index, part in enumerate(value)]
        return value

    def _flips(self, key: str, path: tuple[str | int, ...]) -> bool:
        return hash_to_unit_interval("flip", self.seed, key, *path) < self.flip_rate

    def break_content(self, reply: ScriptedReply, fault: ServerFault, key: str, attempt: int) -> ScriptedReply:
        """Return the reply after a content fault; other faults leave it unchanged."""
        draw = hash_to_unit_interval("place", self.seed, key, attempt)
        match fault:
            case ServerFault.TRUNCATED:
                return ScriptedReply(reply.text[: int(draw * len(reply.text))], finish_reason="length")
            case ServerFault.MALFORMED:
                return ScriptedReply(_OFF_FORMAT if isinstance(reply.content, str) else _break_json(reply.text, draw))
            case ServerFault.WRONG_SHAPE:
                return ScriptedReply({"unexpected": reply.content})
            case ServerFault.REFUSAL:
                return ScriptedReply("", refusal=_REFUSAL)
            case ServerFault.EMPTY:
                return ScriptedReply("")
            case _:
                return reply


def _rate(value: float) -> bool:
    return 0 <= value <= 1


def _break_json(text: str, draw: float) -> str:
    """Return JSON text broken as models break it; no variant is JSON, and a lenient parser would accept each."""
    variants = (f"```json\n{text}\n```", f"Here is the result:\n{text}", f"{text}\n{text}", f"\ufeff{text}", text[:-1])
    return variants[int(draw * len(variants))]


def _swap_first_token(reply: ScriptedReply) -> ScriptedReply:
    """Return the reply with Yes and No exchanged, in its distribution and at the start of its text."""
    distribution, text = reply.first_token or {}, reply.text
    first = max((token for token in distribution if text.startswith(token)), key=len)
    swapped = {_opposite(token): probability for token, probability in distribution.items()}
    return replace(reply, content=_opposite(first) + text[len(first) :], first_token=swapped)


def _opposite(token: str) -> str:
    """Return No for Yes and Yes for No in the same case; other tokens unchanged."""
    if (matched := _YES_OR_NO.match(token)) is None:
        return token
    before, word, after = matched.groups()
    other = "no" if word.lower() == "yes" else "yes"
    if word.isupper():
        other = other.upper()
    elif word[0].isupper():
        other = other.capitalize()
    return before + other + after
