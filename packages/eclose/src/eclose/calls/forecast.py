"""Forecast of calls, tokens and cost of structured requests: the expected values and upper bounds.

Prompt tokens are counted in the requests. Completion tokens follow from the schema (an entry for every step) with free
texts of the usual length of the model. Expected values assume that every request is answered at the first attempt; the
bounds assume that every reply has the largest length allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose.calls.model import Request, TokenUsage
from eclose.calls.paid_once import compute_call_key
from eclose.calls.tokens import PromptPrefixCache, TokenCount, bound_request_usage, bound_token_count
from eclose.files.id_set import SeenIds
from eclose.prompts.structured import inline_schema_definitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.calls.prices import ModelPrice

_PIECES = re.compile(r"[A-Za-z]+|[^\W\d_]|\d|[^\w\s]+|_+|\n\s*")
_LETTERS = 7
"""Letters per token of a word. Of 6, 7, 8, 9 and 12 the nearest to the counts of two large vocabularies: within 5 % on
the prompts it was chosen on, untested on others."""


def estimate_text_tokens(text: str) -> int:
    """Estimate the tokens of English text and JSON."""
    # Words count by the length, each digit and each letter of another script as one, a run of signs as one.
    return sum(-(-len(piece) // _LETTERS) if piece[0].isalpha() else 1 for piece in _PIECES.findall(text))


def count_words(text: str) -> int:
    """Count words, which the world's server bills as tokens."""
    return len(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWritingHabits:
    """Usual lengths of a judge's replies, and the token counting of its provider."""

    count: TokenCount
    a_message: int
    """Tokens that the provider adds to each message."""
    schema_read: bool
    """Whether the schema of the reply is billed as part of the prompt."""
    texts: Mapping[str, int]
    """Words of each free text of the reply, by field name; 0 means null where null is allowed."""
    quoted: float
    """Length of a quote as a share of the mean passage."""
    supported: float
    """Share of steps that have a quote."""


CHAT_MODEL_HABITS = ModelWritingHabits(
    count=estimate_text_tokens,
    a_message=4,
    schema_read=True,
    # The prompt asks for a reason of one or two sentences; a question has about fifteen words, an answer three.
    texts={"reason": 30, "pursued": 15, "established": 3, "answer": 3, "missing": 0},
    quoted=0.15,
    supported=0.5,
)
"""Habits of a language model behind a chat API. Assumed and not measured: the lengths of replies differ by model."""

WORLD_MODEL_NAME = "world"
"""Name of the model that the world's server serves."""
WORLD_MODEL_HABITS = ModelWritingHabits(
    count=count_words,
    a_message=0,
    schema_read=False,
    # It writes no reasons and quotes whole passages; on worlds other than the recorded one, 48 to 59 % of the steps
    # had a quote.
    texts={"answer": 2},
    quoted=1.0,
    supported=0.52,
)
"""Habits of the world's model."""
_HABITS_BY_MODEL: Mapping[str, ModelWritingHabits] = {WORLD_MODEL_NAME: WORLD_MODEL_HABITS}
"""Habits of models that are not those of a language model, by the name without its provider."""

_RESTATED_FIELDS = frozenset({"statements", "claims"})
"""Lists of texts in a reply that say again what the response says."""


def find_writing_habits(name: str) -> ModelWritingHabits:
    """Return the writing habits of ``provider/model``; ``CHAT_MODEL_HABITS`` for a model that has none of its own."""
    return _HABITS_BY_MODEL.get(name.partition("/")[2], CHAT_MODEL_HABITS)


@dataclass(frozen=True, slots=True)
class UsageForecast:
    """Calls, tokens and cost of a set of requests: expected values and upper bounds."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    """Expected completion tokens."""
    most_prompt_tokens: int
    most_completion_tokens: int
    """Completion tokens if every reply had the largest length allowed."""
    cost: int | None
    """Expected cost in millionths; None without a price."""
    most_cost: int | None
    cached_tokens: int = 0
    """Prompt tokens that an earlier prompt begins with as well: a provider with a prompt cache reads them from it."""
    cached_cost: int | None = None
    """Expected cost with these at the price of cached tokens; None where the model has no such price."""


def estimate_request_usage(request: Request, habits: ModelWritingHabits) -> TokenUsage:
    """Return the tokens of a request and of its expected reply."""
    # Chat formats wrap every message into a role and separators, which providers bill as tokens.
    prompt = sum(habits.count(message["content"]) + habits.a_message for message in request.messages)
    if request.schema is None:
        # Without a schema only the largest length of the reply is known.
        return TokenUsage(prompt, request.decoding.max_tokens)
    if habits.schema_read:
        prompt += habits.count(json.dumps(dict(request.schema.schema)))
    material: Any = None
    with suppress(ValueError):
        material = json.loads(request.messages[-1]["content"])
    length = _ReplyLength(habits, material if isinstance(material, Mapping) else {})
    completion = length.count_tokens(request.schema.schema)
    return TokenUsage(prompt, min(round(completion), request.decoding.max_tokens))


def forecast_usage(requests: Iterable[Request], price: ModelPrice | None, habits: ModelWritingHabits) -> UsageForecast:
    """Forecast requests that are each sent once and answered at the first attempt."""
    calls = cached_tokens = 0
    expected, most, cache = TokenUsage(0, 0), TokenUsage(0, 0), PromptPrefixCache()
    for request in requests:
        calls += 1
        usage = estimate_request_usage(request, habits)
        expected = _add(expected, usage)
        most = _add(most, bound_request_usage(request, bound_token_count))
        parts = split_prompt(request)
        cached_tokens += cache.count_cached(parts, usage.prompt_tokens)
        cache.add(parts)
    cached_cost = None
    if price is not None and price.cached is not None:
        cached_cost = price.cost(replace(expected, cached_tokens=cached_tokens))
    return UsageForecast(
        calls=calls,
        prompt_tokens=expected.prompt_tokens,
        completion_tokens=expected.completion_tokens,
        most_prompt_tokens=most.prompt_tokens,
        most_completion_tokens=most.completion_tokens,
        cost=None if price is None else price.cost(expected),
        most_cost=None if price is None else price.cost(most),
        cached_tokens=cached_tokens,
        cached_cost=cached_cost,
    )


def split_prompt(request: Request) -> list[str]:
    """Return the texts of a prompt in the order in which a provider's cache compares them."""
    # Providers put the schema before the messages; one question has one schema name.
    return [request.schema.name if request.schema else "", *(message["content"] for message in request.messages)]


def drop_repeated_requests(requests: Iterable[Request], name: str) -> Iterator[Request]:
    """Yield every distinct request to a model once: the cache answers repetitions, such as those about one question."""
    keys = SeenIds()
    for number, request in enumerate(requests):
        if keys.add(compute_call_key(name, request), b"", number) is None:
            yield request


def _add(usage: TokenUsage, other: TokenUsage) -> TokenUsage:
    return TokenUsage(usage.prompt_tokens + other.prompt_tokens, usage.completion_tokens + other.completion_tokens)


@dataclass(frozen=True)
class _ReplyLength:
    habits: ModelWritingHabits
    material: Mapping[str, Any]
    """What the judge sees in the last message; empty where that is no JSON object."""

    def count_tokens(self, schema: Mapping[str, Any]) -> float:
        """Return the tokens of the reply: its JSON skeleton and the texts in it."""
        skeleton, texts = self._value(inline_schema_definitions(schema), "")
        return self.habits.count(json.dumps(skeleton)) + texts

    def _value(self, schema: Mapping[str, Any], name: str) -> tuple[Any, float]:
        """Return an example value with empty texts, and the tokens of the texts."""
        if (options := schema.get("anyOf")) is not None:
            return self._nullable(options, name)
        match schema.get("type"):
            case "object":
                parts = {key: self._value(part, key) for key, part in schema["properties"].items()}
                return {key: value for key, (value, _) in parts.items()}, sum(texts for _, texts in parts.values())
            case "string" if "enum" not in schema:
                return "", self._text(name)
            case "array" if name in _RESTATED_FIELDS:
                # A list of what the response says is about as long as the response.
                steps = [step["text"] for step in self.material.get("steps", ())]
                if (answer := self.material.get("answer")) is not None:
                    # The statement about the answer repeats the question.
                    steps.append(f"{self.material.get('question')} {answer}")
                return [], float(sum(map(self.habits.count, steps)))
            case kind:
                return {"boolean": True, "integer": 1, "string": "L1"}.get(str(kind)), 0.0

    def _nullable(self, options: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, float]:
        schema = next(option for option in options if option.get("type") != "null")
        if schema.get("type") == "object":  # a quote with its passage, which only some of the steps have
            value, texts = self._value(schema, name)
            extra = self.habits.count(json.dumps(value)) - self.habits.count("null")
            return None, self.habits.supported * (extra + texts)
        # Verdicts of steps are nearly always present, failure codes nearly never.
        if schema.get("type") == "boolean" or (schema.get("type") == "string" and self.habits.texts.get(name)):
            return self._value(schema, name)
        return None, 0.0

    def _text(self, name: str) -> float:
        if name == "quote":
            passages = [self.habits.count(passage["text"]) for passage in self.material.get("evidence", ())]
            return self.habits.quoted * sum(passages) / max(len(passages), 1)
        return self.habits.count("word " * self.habits.texts.get(name, 0))
