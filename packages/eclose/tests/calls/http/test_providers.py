"""Named providers: routes from the environment, and replies and refusals in the shapes that providers document."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import eclose
from eclose.calls.client import CallSettings
from eclose.calls.http.endpoint import Endpoint, ModelRoute, ServerAddress, find_model_route
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.http.providers import MODEL_PROVIDERS, read_messages
from eclose.calls.model import Decoding, ReplySchema, Request
from eclose.calls.prices import find_listed_price
from eclose.calls.resolve import find_model_ref
from eclose.cli.shared.env_file import _KNOWN, _SECRETS
from eclose.errors import SettingError
from eclose.values.model_family import same_model_family
from eclose_world.make.instances import make_world_item
from eclose_world.roles.judge import register_judge_handlers
from eclose_world.server.app import open_model_server
from eclose_world.server.chat_requests import HandlerRegistry
from tests.calls.http.site import site

ROOT = Path(__file__).parents[5]
CANARY = "canary.0123456789abcdef.canary"
ENVIRON = {
    "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
    "AWS_REGION": "eu-west-1",
    "GOOGLE_CLOUD_PROJECT": "acme-prod",
    "GOOGLE_CLOUD_LOCATION": "europe-west4",
} | {provider.key_variable: CANARY for provider in MODEL_PROVIDERS.values() if provider.key_variable}
VERDICT = ReplySchema(
    "verdict",
    {
        "type": "object",
        "required": ["sound"],
        "properties": {"sound": {"type": "boolean"}},
        "additionalProperties": False,
    },
)
K = CallFailureKind

# --- routes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "environ", "url", "recorded"),
    [
        ("anthropic/claude-x", {}, "https://api.anthropic.com/v1", "anthropic/claude-x"),
        ("azure/judge", {}, "https://mine.openai.azure.com/openai/v1", "azure:mine/judge"),
        (
            "azure/judge",
            {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/openai/v1/"},
            "https://mine.openai.azure.com/openai/v1",
            "azure:mine/judge",
        ),
        (
            "azure/judge",
            {"OPENAI_API_VERSION": "2024-10-21"},
            "https://mine.openai.azure.com/openai/deployments/judge",
            "azure:mine/judge",
        ),
        (
            "azure/judge",
            {"ECLOSE_SERVER_NAME": "team-a"},
            "https://mine.openai.azure.com/openai/v1",
            "azure:team-a/judge",
        ),
        (
            "bedrock/openai.gpt-x",
            {},
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            "bedrock/openai.gpt-x",
        ),
        (
            "vertex/google/gemini-x",
            {},
            "https://europe-west4-aiplatform.googleapis.com/v1/projects/acme-prod/locations/europe-west4/endpoints/openapi",
            "vertex/google/gemini-x",
        ),
        (
            "vertex/gemini-x",
            {"GOOGLE_CLOUD_LOCATION": "global"},
            "https://aiplatform.googleapis.com/v1/projects/acme-prod/locations/global/endpoints/openapi",
            "vertex/google/gemini-x",
        ),
        ("mistral/mistral-x", {}, "https://api.mistral.ai/v1", "mistral/mistral-x"),
        ("openrouter/a/b", {}, "https://openrouter.ai/api/v1", "openrouter/a/b"),
        ("together/a/b", {}, "https://api.together.xyz/v1", "together/a/b"),
        ("groq/llama-x", {}, "https://api.groq.com/openai/v1", "groq/llama-x"),
        ("ollama/qwen3", {}, "http://127.0.0.1:11434/v1", "ollama/qwen3"),
        ("vllm/Qwen/Qwen3-8B", {}, "http://127.0.0.1:8000/v1", "vllm/Qwen/Qwen3-8B"),
    ],
)
def test_a_name_gives_the_route_and_the_name_in_records(name, environ, url, recorded):
    ref = find_model_ref(name, environ=ENVIRON | environ)
    assert (ref.route.base_url, ref.name, ref.identity["model"]) == (url, recorded, recorded)
    assert CANARY not in f"{ref!r} {ref.identity} {ref.source}"


def test_where_requests_go_is_not_part_of_a_name_unless_it_decides_the_model():
    for name, moved in (
        ("bedrock/openai.gpt-x", {"AWS_REGION": "us-west-2"}),
        ("vertex/gemini-x", {"GOOGLE_CLOUD_PROJECT": "acme-test", "GOOGLE_CLOUD_LOCATION": "us-central1"}),
        ("azure/judge", {"AZURE_OPENAI_API_VERSION": "2024-10-21"}),
    ):
        assert find_model_route(name, environ=ENVIRON | moved).name == find_model_route(name, environ=ENVIRON).name
    other = {"AZURE_OPENAI_ENDPOINT": "https://other.openai.azure.com"}
    assert find_model_route("azure/judge", environ=ENVIRON | other).name == "azure:other/judge"


@pytest.mark.parametrize("name", MODEL_PROVIDERS)
def test_a_missing_key_names_its_variable(name):
    provider = MODEL_PROVIDERS[name]
    environ = {variable: value for variable, value in ENVIRON.items() if variable in provider.variables}
    others = {
        other: CANARY for other in ENVIRON if other.endswith(("_KEY", "_TOKEN")) and other != provider.key_variable
    }
    if provider.key_variable is None:
        assert find_model_route(f"{name}/m", environ=environ | others).key is None
        return
    with pytest.raises(SettingError, match=f"no API key. Set {provider.key_variable}"):
        find_model_route(f"{name}/m", environ=environ | others | {"ECLOSE_API_KEY": CANARY})
    assert find_model_route(f"{name}/m", environ=environ, keyless=True).key is None


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("azure", "no endpoint is given. Set AZURE_OPENAI_ENDPOINT"),
        ("bedrock", "no region is given. Set AWS_REGION or AWS_DEFAULT_REGION"),
        ("vertex", "no project and no location is given. Set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
    ],
)
def test_a_missing_setting_names_its_variable(name, missing):
    with pytest.raises(SettingError, match=missing):
        find_model_route(f"{name}/m", environ={MODEL_PROVIDERS[name].key_variable: CANARY})


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("bedrock", "AWS_REGION", "evil.example/"),
        ("bedrock", "AWS_REGION", "x@evil.example#"),
        ("vertex", "GOOGLE_CLOUD_PROJECT", "../../elsewhere"),
        ("vertex", "GOOGLE_CLOUD_LOCATION", "evil.example/?"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "https://user:secret@evil.example"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "http://169.254.169.254"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "mine"),
    ],
)
def test_a_setting_cannot_lead_to_another_host_or_path(name, variable, value):
    with pytest.raises(SettingError) as raised:
        find_model_route(f"{name}/m", environ=ENVIRON | {variable: value})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic/claude-x", "Did you mean anthropic/claude-x?"),
        ("claude/claude-x", "Did you mean anthropic/claude-x?"),
        ("vertexai/gemini-x", "Did you mean vertex/gemini-x?"),
        ("Azure/judge", "Did you mean azure/judge?"),
        ("aws/nova", "Did you mean bedrock/nova?"),
        ("mistralai/m", "Did you mean mistral/m?"),
        ("x-ai/grok-4", "Did you mean xai/grok-4?"),
        ("qqq/m", ""),
    ],
)
def test_an_unknown_provider_lists_the_known_and_the_nearest(name, hint):
    with pytest.raises(SettingError) as raised:
        find_model_route(name, environ={})
    message = str(raised.value)
    assert all(provider in message for provider in (*MODEL_PROVIDERS, "inspect/PROVIDER/MODEL", "--base-url"))
    assert hint in message
    assert hint or "Did you mean" not in message


def format_provider_table():
    """The table of providers as Markdown, as it stands in the guide."""
    rows = ["| name | environment variables | notes |", "|---|---|---|"]
    for name, provider in MODEL_PROVIDERS.items():
        keys = [variable for variable in (provider.key_variable, provider.token_variable) if variable]
        needed = [" or ".join(f"`{variable}`" for variable in keys)] if keys else []
        needed += [" or ".join(f"`{variable}`" for variable in variables) for variables in provider.settings.values()]
        rows.append(f"| `{name}/…` | {', '.join(needed)} | {provider.notes} |")
    return "\n".join(rows)


def test_the_guide_and_the_env_file_follow_the_table():
    page = (ROOT / "docs" / "guides" / "models.md").read_text("utf-8")
    assert format_provider_table() in page
    for provider in MODEL_PROVIDERS.values():
        assert set(provider.variables) | set(provider.version_variables) <= _KNOWN
        for key in filter(None, (provider.key_variable, provider.token_variable)):
            assert _SECRETS.fullmatch(key)


def test_prices_are_found_by_the_provider():
    pytest.importorskip("genai_prices")
    assert find_listed_price("azure:mine/gpt-4o", {}) == find_listed_price("azure/gpt-4o", {})
    assert find_listed_price("vertex/google/gemini-2.5-flash", {}) == find_listed_price("gemini/gemini-2.5-flash", {})
    # A host of one's own that is called like a provider.
    with pytest.raises(SettingError, match="no price"):
        find_listed_price("openai:8000/gpt-4o", {})


def test_families_are_recognised_whoever_serves_them():
    assert same_model_family("bedrock/us.openai.gpt-x", "azure:mine/gpt-4o")
    assert same_model_family("vertex/google/gemini-x", "gemini/gemini-y")


# --- recorded shapes ---------------------------------------------------------------------------------------------


@dataclass
class Recorded:
    """A server that answers each request with the next recorded response and keeps what it received."""

    answers: list[tuple[int, dict[str, str], Any]]
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    async def handle(self, received: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in received.headers.items()}
        self.requests.append((received.path_qs, headers, await received.json()))
        status, answer_headers, body = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return web.json_response(body, status=status, headers=answer_headers)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]


def ask(name: str, recorded: Recorded, *requests: Request, environ: dict[str, str] | None = None) -> list[Any]:
    """Send requests to a provider whose host is the recorded server; return replies and failures."""

    async def main() -> list[Any]:
        async with site(recorded.handle) as url:
            origin = url.removesuffix("/v1")
            route = find_model_route(name, environ=ENVIRON | {"AZURE_OPENAI_ENDPOINT": origin} | (environ or {}))
            path = route.base_url.partition("://")[2].partition("/")[2]
            local = replace(route, base_url=f"{origin}/{path}")
            async with Endpoint(local, deadline=10.0) as model:
                return [await outcome_of(model, request) for request in requests]

    return asyncio.run(asyncio.wait_for(main(), 30))


async def outcome_of(model: Endpoint, request: Request) -> Any:
    try:
        return await model.complete(request)
    except CallFailure as failure:
        return failure


def text_request(**more: Any) -> Request:
    return Request(({"role": "user", "content": "is it sound?"},), **more)


def completion(content: str | None = "fine", finish: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {
        "id": "1",
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    }


def tool_completion() -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "verdict", "arguments": '{"sound": true}'}}
    return completion(None, "tool_calls", tool_calls=[call])


# Additions to a chat completion that each provider documents and that a parser must pass over.
SUCCESSES = {
    "anthropic": completion() | {"system_fingerprint": None, "service_tier": None},
    "azure": completion()
    | {"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]},
    "bedrock": completion() | {"service_tier": "default", "system_fingerprint": "fp"},
    "groq": completion() | {"x_groq": {"id": "req_1"}, "usage_breakdown": None},
    "mistral": completion(tool_calls=None),
    "ollama": completion() | {"system_fingerprint": "fp_ollama"},
    "openrouter": completion(refusal=None, reasoning=None) | {"provider": "Together"},
    "together": completion(tool_calls=[]) | {"prompt": []},
    "vertex": completion()
    | {"usage": {"prompt_tokens": 5, "completion_tokens": 1, "extra_properties": {"google": {}}}},
    "vllm": completion(tool_calls=[], reasoning_content=None) | {"prompt_logprobs": None, "kv_transfer_params": None},
}


@pytest.mark.parametrize("name", SUCCESSES)
def test_replies_are_read_and_keys_go_into_one_header(name):
    recorded = Recorded([(200, {}, SUCCESSES[name])])
    (reply,) = ask(f"{name}/m", recorded, text_request())
    assert (reply.text, reply.usage.prompt_tokens) == ("fine", 5)
    ((path, headers, body),) = recorded.requests
    header = MODEL_PROVIDERS[name].key_header
    key = CANARY if MODEL_PROVIDERS[name].key_variable else "none"
    assert headers[header] == (f"Bearer {key}" if header == "authorization" else key)
    assert [field for field in headers if CANARY in headers[field]] == ([header] if key == CANARY else [])
    assert CANARY not in path + json.dumps(body)
    assert body["model"] == ("google/m" if name == "vertex" else "m")
    assert path.endswith("/chat/completions")


def test_azure_by_version_and_by_token():
    environ = {"AZURE_OPENAI_API_VERSION": "2024-10-21", "AZURE_OPENAI_API_KEY": "", "AZURE_OPENAI_AD_TOKEN": CANARY}
    recorded = Recorded([(200, {}, completion())])
    ask("azure/judge", recorded, text_request(), environ=environ)
    ((path, headers, _),) = recorded.requests
    assert path == "/openai/deployments/judge/chat/completions?api-version=2024-10-21"
    assert headers["authorization"] == f"Bearer {CANARY}"
    assert "api-key" not in headers


# Status, headers, body; the kind of the failure, the seconds to wait and words of its message.
REFUSALS: dict[str, list[tuple[int, dict[str, str], Any, CallFailureKind, float | None, str]]] = {
    "anthropic": [
        (
            429,
            {"retry-after": "12", "anthropic-ratelimit-requests-remaining": "0"},
            {
                "error": {
                    "code": "rate_limit_error",
                    "message": "This request would exceed your rate limit.",
                    "param": None,
                }
            },
            K.RATE_LIMIT,
            12.0,
            "would exceed your rate limit",
        ),
        (
            400,
            {},
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "Your credit balance is too low to access the API.",
                },
            },
            K.DENIED,
            None,
            "credit balance",
        ),
        (
            529,
            {},
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            K.TRANSIENT,
            None,
            "Over",
        ),
        (
            401,
            {},
            {"error": {"code": "invalid_request_error", "message": f"invalid x-api-key {CANARY}"}},
            K.DENIED,
            None,
            "Check the API key",
        ),
    ],
    "azure": [
        (
            429,
            {"retry-after": "7", "retry-after-ms": "6500"},
            {"error": {"code": "429", "message": "Requests have exceeded the call rate limit of your pricing tier."}},
            K.RATE_LIMIT,
            6.5,
            "call rate limit",
        ),
        (
            400,
            {},
            {
                "error": {
                    "message": "The response was filtered due to the prompt triggering the content management policy.",
                    "code": "content_filter",
                    "status": 400,
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            K.REFUSAL,
            None,
            "filtered",
        ),
        (
            404,
            {},
            {
                "error": {
                    "code": "DeploymentNotFound",
                    "message": "The API deployment for this resource does not exist.",
                }
            },
            K.DENIED,
            None,
            "does not exist",
        ),
    ],
    "bedrock": [
        (
            429,
            {},
            {"message": "Too many requests, please wait before trying again."},
            K.RATE_LIMIT,
            None,
            "Too many requests,",
        ),
        (403, {}, {"Message": "Bearer Token has expired"}, K.DENIED, None, "Check the permissions"),
        (
            400,
            {},
            {"message": "The provided model identifier is invalid."},
            K.PERMANENT,
            None,
            "HTTP 400: The provided",
        ),
    ],
    "groq": [
        (
            429,
            {"retry-after": "2", "x-ratelimit-reset-tokens": "7.66s"},
            {"error": {"message": "Rate limit reached for model", "type": "tokens", "code": "rate_limit_exceeded"}},
            K.RATE_LIMIT,
            2.0,
            "Rate limit reached",
        ),
        (
            400,
            {},
            {
                "error": {
                    "message": "Failed to generate JSON. Please adjust your prompt.",
                    "type": "invalid_request_error",
                    "code": "json_validate_failed",
                    "failed_generation": "{",
                }
            },
            K.INVALID,
            None,
            "Failed to generate JSON",
        ),
    ],
    "mistral": [
        (
            429,
            {},
            {"message": "Requests rate limit exceeded"},
            K.RATE_LIMIT,
            None,
            "HTTP 429: Requests rate limit exceeded",
        ),
        (401, {}, {"message": "Unauthorized", "request_id": "1"}, K.DENIED, None, "HTTP 401: Unauthorized"),
    ],
    "ollama": [
        (
            404,
            {},
            {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}},
            K.DENIED,
            None,
            "pull",
        )
    ],
    "openrouter": [
        (402, {}, {"error": {"code": 402, "message": "Insufficient credits"}}, K.DENIED, None, "account"),
        (
            429,
            {"Retry-After": "30"},
            {"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-min", "metadata": {}}},
            K.RATE_LIMIT,
            30.0,
            "free-models",
        ),
        (
            200,
            {},
            {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "X"}}},
            K.TRANSIENT,
            None,
            "Provider returned error",
        ),
        (
            403,
            {},
            {"error": {"code": 403, "message": "Input was flagged", "metadata": {"reasons": ["x"]}}},
            K.REFUSAL,
            None,
            "flagged",
        ),
    ],
    "together": [
        (
            429,
            {"x-ratelimit-reset": "1"},
            {"id": "1", "error": {"message": "You have reached the rate limit", "type": "rate_limit", "code": None}},
            K.RATE_LIMIT,
            None,
            "reached the rate limit",
        ),
        (
            422,
            {},
            {
                "error": {
                    "message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Got more"
                }
            },
            K.PERMANENT,
            None,
            "validation error",
        ),
    ],
    "vertex": [
        (
            429,
            {},
            [{"error": {"code": 429, "message": "Resource exhausted. Try later.", "status": "RESOURCE_EXHAUSTED"}}],
            K.RATE_LIMIT,
            None,
            "HTTP 429: Resource exhausted",
        ),
        (
            401,
            {},
            [{"error": {"code": 401, "message": "Request had invalid credentials.", "status": "UNAUTHENTICATED"}}],
            K.DENIED,
            None,
            "HTTP 401: Request had",
        ),
    ],
    "vllm": [
        (
            400,
            {},
            {
                "error": {
                    "message": "This model's maximum context length is 8192 tokens.",
                    "type": "BadRequestError",
                    "param": None,
                    "code": 400,
                }
            },
            K.TOO_LONG,
            None,
            "maximum context",
        )
    ],
}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in REFUSALS.items() for case in cases])
def test_refusals_have_a_kind_a_wait_and_a_reason(name, case):
    status, headers, body, kind, wait, words = case
    recorded = Recorded([(status, headers, body)])
    (failure,) = ask(f"{name}/m", recorded, text_request())
    assert isinstance(failure, CallFailure)
    assert (failure.kind, failure.retry_after) == (kind, wait)
    assert words in failure.problem
    assert CANARY not in f"{failure.problem} {failure.raw}"
    assert len(recorded.requests) == 1


def test_anthropic_gets_schemas_as_tools_and_no_seed():
    recorded = Recorded([(200, {}, tool_completion())])
    (reply,) = ask("anthropic/m", recorded, text_request(schema=VERDICT, decoding=Decoding(seed=3)))
    assert json.loads(reply.text) == {"sound": True}
    (body,) = recorded.bodies
    assert body["tool_choice"] == {"type": "function", "function": {"name": "verdict"}}
    assert "response_format" not in body
    assert "seed" not in body


def test_mistral_gets_the_seed_by_its_own_name():
    recorded = Recorded([(200, {}, completion())])
    ask("mistral/m", recorded, text_request(decoding=Decoding(temperature=1.0, seed=3)))
    (body,) = recorded.bodies
    assert "seed" not in body
    assert body["random_seed"] >= 0


@pytest.mark.parametrize("name", [name for name, provider in MODEL_PROVIDERS.items() if not provider.logprobs])
def test_log_probabilities_are_refused_before_a_call_is_paid(name):
    recorded = Recorded([(200, {}, completion())])
    (failure,) = ask(f"{name}/m", recorded, text_request(decoding=Decoding(top_logprobs=5)))
    assert (failure.kind, failure.unpaid, recorded.requests) == (K.DENIED, True, [])
    assert f"{name} reports no log-probabilities" in failure.problem


@pytest.mark.parametrize(
    ("name", "field", "status", "body"),
    [
        (
            "anthropic",
            "temperature",
            400,
            {
                "error": {
                    "code": "invalid_request_error",
                    "message": "`temperature` is deprecated for this model.",
                    "param": None,
                }
            },
        ),
        (
            "openai",
            "temperature",
            400,
            {
                "error": {
                    "message": "Unsupported value: 'temperature' does not support 0.0 with this model. "
                    "Only the default (1) value is supported.",
                    "type": "invalid_request_error",
                    "param": "temperature",
                    "code": "unsupported_value",
                }
            },
        ),
        (
            "azure",
            "seed",
            400,
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
        ),
        ("bedrock", "seed", 400, {"error": {"message": "Unrecognized request argument supplied: seed"}}),
    ],
)
def test_a_refused_sampling_setting_is_left_out_with_one_warning(name, field, status, body, caplog):
    recorded = Recorded([(status, {}, body), (200, {}, completion())])
    decoding = Decoding(seed=3)
    first, second = ask(f"{name}/m", recorded, text_request(decoding=decoding), text_request(decoding=decoding))
    assert (first.text, second.text) == ("fine", "fine")
    assert [field in sent for sent in recorded.bodies] == [True, False, False]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert f"refuses {field}: requests are sent without it" in warnings[0]


@pytest.mark.parametrize(
    "message",
    [
        "temperature must be between 0 and 2.",
        "Value error, `tool_choice` is not supported. input: {'temperature': 0.0, 'seed': 3, 'model': 'm'}",
        "This model is not supported.",
    ],
)
def test_other_refusals_keep_the_sampling_settings(message):
    recorded = Recorded([(400, {}, {"error": {"message": message}})])
    (failure,) = ask("groq/m", recorded, text_request(decoding=Decoding(seed=3)))
    assert failure.kind is K.PERMANENT
    assert len(recorded.requests) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("groq", "This model does not support response format `json_schema`. See supported models"),
        ("bedrock", "For 'object' type, 'additionalProperties' must be explicitly set to false"),
        ("azure", "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
    ],
)
def test_a_refused_schema_is_sent_as_a_tool(name, message):
    recorded = Recorded([(400, {}, {"error": {"message": message}}), (200, {}, tool_completion())])
    (reply,) = ask(f"{name}/m", recorded, text_request(schema=VERDICT))
    assert json.loads(reply.text) == {"sound": True}
    assert ["response_format" in body for body in recorded.bodies] == [True, False]


def test_instructions_are_marked_for_the_cache_only_where_the_provider_needs_it():
    messages = ({"role": "system", "content": "Judge."}, {"role": "user", "content": "a response"})
    recorded = Recorded([(200, {}, completion())])
    ask("openrouter/anthropic/m", recorded, Request(messages))
    mark = {"type": "text", "text": "Judge.", "cache_control": {"type": "ephemeral"}}
    assert recorded.bodies[0]["messages"] == [{"role": "system", "content": [mark]}, messages[1]]
    assert read_messages(recorded.bodies[0]) == messages
    for name in ("openrouter/openai/m", "anthropic/m", "openai/m"):
        recorded = Recorded([(200, {}, completion())])
        ask(name, recorded, Request(messages))
        assert recorded.bodies[0]["messages"] == list(messages)


def test_a_refused_mark_is_left_out():
    refusal = {"error": {"message": "messages.0.content.0.cache_control: Extra inputs are not permitted"}}
    recorded = Recorded([(400, {}, refusal), (200, {}, completion())])
    messages = ({"role": "system", "content": "Judge."}, {"role": "user", "content": "a response"})
    ask("openrouter/anthropic/m", recorded, Request(messages))
    assert recorded.bodies[1]["messages"] == list(messages)


def test_a_route_to_a_known_address_has_its_provider():
    route = ModelRoute("https://api.mistral.ai/v1", "m")
    assert (route.provider, route.name, route.dialect.seed) == ("mistral", "mistral/m", "random_seed")
    assert ModelRoute("http://127.0.0.1:8642/v1", "m").provider is None


# --- a whole run -------------------------------------------------------------------------------------------------


def read_ledger(path: Path) -> bytes:
    """Return every value of a ledger, decompressed."""
    values: list[bytes] = []
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for row in (row for table in tables for row in database.execute(f'SELECT * FROM "{table}"')):
            for value in row:
                content = value if isinstance(value, bytes) else str(value).encode()
                with suppress(zlib.error):
                    content = zlib.decompress(content)
                values.append(content)
    return b"\n".join(values)


@pytest.mark.slow
def test_a_run_by_name_records_the_provider_and_no_key(tmp_path, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    for variable in ("ECLOSE_BASE_URL", "OPENAI_API_VERSION", "AZURE_OPENAI_API_VERSION"):
        monkeypatch.delenv(variable, raising=False)
    item = make_world_item("short-easy", 1, 0)
    row = {
        "user_input": item.instance.question,
        "retrieved_contexts": [passage.text for passage in item.instance.evidence],
        "response": f"It is known.\nFinal answer: {item.instance.reference_answer}",
        "reference": item.instance.reference_answer,
    }
    keys: set[str | None] = set()
    registry = HandlerRegistry()
    register_judge_handlers(registry)

    async def main() -> Any:
        async with (
            open_model_server(registry) as server,
            aiohttp.ClientSession() as session,
        ):

            async def forward(received: web.Request) -> web.Response:
                keys.add(received.headers.get("api-key"))
                url = server.base_url + received.path.removeprefix("/openai/v1")
                async with session.post(url, json=await received.json()) as answer:
                    return web.json_response(await answer.json(), status=answer.status)

            async with site(forward) as url:
                monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", url.removesuffix("/v1"))
                monkeypatch.setenv("AZURE_OPENAI_API_KEY", CANARY)
                return await eclose.aevaluate(
                    [row], judge="azure/world", out=tmp_path, calls=CallSettings(unpriced=True),
                    base_url=ServerAddress(None, "mine"),
                )  # fmt: skip

    asyncio.run(asyncio.wait_for(main(), 60))
    assert keys == {CANARY}
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert b'"azure:mine/world"' in files["judgments.jsonl.manifest.json"]
    ledger = read_ledger(tmp_path / "ledger.sqlite")
    assert b"azure:mine/world" in ledger
    streams = capfd.readouterr()
    written = [ledger, *files.values(), *(text.encode() for text in (caplog.text, streams.out, streams.err))]
    assert not any(CANARY.encode() in content for content in written)
