"""What structured questions will cost, before any is sent: what is expected, and what it can come to at most.

Both are worked out from the requests themselves. What is read is in them, and is counted as the provider counts. What
is written is not: its form is known (the schema, an entry for every step), and the free texts in it are supposed to be
as long as a model of that kind usually makes them. A reply that is asked for again is not expected; the most supposes
that every reply is as long as it may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.models.interface import Request, Usage
from eclose.models.token_counts import TokenCount, bound_tokens, bound_usage
from eclose.protocol.structured import inlined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.calls.prices import Price

_PIECES = re.compile(r"[A-Za-z]+|[^\W\d_]|\d|[^\w\s]+|_+|\n\s*")
_LETTERS = 7
"""A word is a token for each so many letters. Of 6, 7, 8, 9 and 12 the nearest to what two large vocabularies count in
questions about evidence: within 5 % on the prompts it was chosen on, and not tried on others."""


def estimate_expected_tokens(text: str) -> int:
    """Tokens of English text and JSON: words in pieces, every digit and foreign letter as one, signs by the run."""
    return sum(-(-len(piece) // _LETTERS) if piece[0].isalpha() else 1 for piece in _PIECES.findall(text))


def count_words(text: str) -> int:
    """What the world's model server counts."""
    return len(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingHabits:
    """How a judge writes, and how whoever bills it counts."""

    count: TokenCount
    a_message: int
    """Tokens that the provider adds to a message."""
    schema_read: bool
    """Whether the shape of the reply is put into the prompt, and billed with it."""
    texts: Mapping[str, int]
    """Words in a free text of the reply, by its name; where null is allowed, none means null."""
    quoted: float
    """The part of a mean passage that a quote copies."""
    supported: float
    """The share of steps that are given a quote."""


MODEL = WritingHabits(
    count=estimate_expected_tokens,
    a_message=4,
    schema_read=True,
    # The frame asks for a reason of one or two sentences; a question is some fifteen words, an answer a few.
    texts={"reason": 30, "pursued": 15, "established": 3, "answer": 3, "missing": 0},
    quoted=0.15,
    supported=0.5,
)
"""A language model behind an interface of the usual kind. Supposed, not measured: models differ in what they say."""

WORLD = WritingHabits(
    count=count_words,
    a_message=0,
    schema_read=False,
    # It gives no reasons, quotes the whole passage, and on other worlds than those of the record backed 48 to 59 % of
    # the steps with one.
    texts={"answer": 2},
    quoted=1.0,
    supported=0.52,
)
"""The world's model server."""


def find_habits(name: str) -> WritingHabits:
    """By what a model is called: ``provider/model``."""
    return WORLD if name.partition("/")[2] == "world" else MODEL


@dataclass(frozen=True, slots=True)
class UsageForecast:
    """What a set of requests will take."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    """Expected, like those of the prompts."""
    most_prompt_tokens: int
    most_completion_tokens: int
    """If every reply were as long as allowed."""
    cost: int | None
    """Expected, in millionths; None without a price."""
    most_cost: int | None


def expected_usage(request: Request, habits: WritingHabits) -> Usage:
    """The tokens of a request, and those of the reply that is to be expected."""
    prompt = sum(habits.count(message["content"]) + habits.a_message for message in request.messages)
    if request.schema is None:
        # Nothing is known of a reply without a shape but how long it may be.
        return Usage(prompt, request.decoding.max_tokens)
    if habits.schema_read:
        prompt += habits.count(json.dumps(dict(request.schema.schema)))
    written = _Expected(habits, _material(request)).tokens(request.schema.schema)
    return Usage(prompt, min(round(written), request.decoding.max_tokens))


def forecast_usage(requests: Iterable[Request], price: Price | None, habits: WritingHabits) -> UsageForecast:
    """Calls, tokens and cost of requests that are each sent once and answered at the first attempt."""
    calls = 0
    expected, most = Usage(0, 0), Usage(0, 0)
    for request in requests:
        calls += 1
        expected = _sum(expected, expected_usage(request, habits))
        most = _sum(most, bound_usage(request, bound_tokens))
    costs = (None, None) if price is None else (price.cost(expected), price.cost(most))
    return UsageForecast(
        calls,
        expected.prompt_tokens,
        expected.completion_tokens,
        most.prompt_tokens,
        most.completion_tokens,
        *costs,
    )


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(one.prompt_tokens + other.prompt_tokens, one.completion_tokens + other.completion_tokens)


def _material(request: Request) -> Mapping[str, Any]:
    """What the judge is shown; nothing where the last message is not of that kind."""
    try:
        shown = json.loads(request.messages[-1]["content"])
    except ValueError:
        return {}
    return shown if isinstance(shown, Mapping) else {}


class _Expected:
    """The length of the reply to one request."""

    def __init__(self, habits: WritingHabits, material: Mapping[str, Any]) -> None:
        self._habits = habits
        self._material = material

    def tokens(self, schema: Mapping[str, Any]) -> float:
        """Of the whole reply: its skeleton, and the texts in it."""
        skeleton, texts = self._value(inlined(schema), "")
        return self._habits.count(json.dumps(skeleton)) + texts

    def _value(self, schema: Mapping[str, Any], name: str) -> tuple[Any, float]:
        """A value without its texts, and the tokens of these."""
        if (either := schema.get("anyOf")) is not None:
            return self._or_null(either, name)
        match schema.get("type"):
            case "object":
                parts = {key: self._value(part, key) for key, part in schema["properties"].items()}
                return {key: value for key, (value, _) in parts.items()}, sum(texts for _, texts in parts.values())
            case "string" if "enum" not in schema:
                return "", self._text(name)
            case kind:
                return {"boolean": True, "integer": 1, "string": "L1"}.get(str(kind)), 0.0

    def _or_null(self, either: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, float]:
        schema = next(one for one in either if one.get("type") != "null")
        if schema.get("type") == "object":  # a quote with its passage, for some of the steps
            value, texts = self._value(schema, name)
            extra = self._habits.count(json.dumps(value)) - self._habits.count("null")
            return None, self._habits.supported * (extra + texts)
        # Verdicts of steps are nearly always given, codes nearly never.
        if schema.get("type") == "boolean" or (schema.get("type") == "string" and self._habits.texts.get(name)):
            return self._value(schema, name)
        return None, 0.0

    def _text(self, name: str) -> float:
        if name == "quote":
            return self._habits.quoted * self._mean_passage()
        return self._habits.count("word " * self._habits.texts.get(name, 0))

    def _mean_passage(self) -> float:
        evidence = self._material.get("evidence", ())
        return sum(self._habits.count(passage["text"]) for passage in evidence) / max(len(evidence), 1)
