"""Request bodies of chat completions in the variants that servers accept, and the table of named providers.

Every provider here has a route that is compatible with OpenAI's chat completions. A row records what the provider's own
documentation states; what a server refuses beyond that is learned from its refusals (``RequestDialect.after``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from eclose.errors import SettingError
from eclose.prompts.locked_texts import PromptMessage

if TYPE_CHECKING:
    from eclose.calls.http.failures import CallFailure
    from eclose.calls.model import Request
    from eclose.files.json_reader import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestDialect:
    """The variant of the request body that a server accepts."""

    by_tool: bool = False
    """Whether a structured reply is requested as a forced tool call, for servers without ``json_schema``."""
    limit: str = "max_tokens"
    """Name of the limit on new tokens. OpenAI's newest models refuse ``max_tokens``; all other servers accept it."""
    template: bool = True
    """Whether the server accepts ``chat_template_kwargs``, which turn thinking off."""
    temperature: bool = True
    """Whether the model accepts ``temperature``; several reasoning models refuse every value."""
    seed: str | None = "seed"
    """Name of the seed; None where the server accepts none."""
    cache_marks: bool = False
    """Whether the server caches a prefix of the prompt only where the request marks its end with ``cache_control``."""

    def after(self, failure: CallFailure) -> RequestDialect | None:
        """Return the variant to try after a refusal; None where the refusal has another cause."""
        # Servers word refusals differently, but all name the field. Each change is made once, so the loop ends.
        message = (failure.raw or "") if failure.status in (400, 422) else ""
        # A strict mode may refuse a keyword of the schema without naming the field: "'additionalProperties' must be …".
        if not self.by_tool and any(word in message for word in ("response_format", "json_schema", "additionalProp")):
            return replace(self, by_tool=True)
        if self.limit == "max_tokens" and "max_completion_tokens" in message:
            return replace(self, limit="max_completion_tokens")
        if self.template and "chat_template_kwargs" in message:
            return replace(self, template=False)
        if self.temperature and _refuses(message, "temperature"):
            return replace(self, temperature=False)
        if self.seed is not None and _refuses(message, self.seed):
            return replace(self, seed=None)
        if self.cache_marks and "cache_control" in message:
            return replace(self, cache_marks=False)
        return None

    def warn_of_omission(self, before: RequestDialect, model: str) -> None:
        """Log the sampling settings that this variant leaves out and ``before`` sent: replies then vary."""
        temperature = ["temperature"] if before.temperature and not self.temperature else []
        seed = ["seed"] if before.seed is not None and self.seed is None else []
        if omitted := " and ".join(temperature + seed):
            _log.warning("%s refuses %s: requests are sent without it, so replies may vary.", model, omitted)

    def body(self, model: str, request: Request) -> dict[str, Any]:
        """Return the JSON body of a request."""
        decoding = request.decoding
        body: dict[str, Any] = {
            "model": model,
            "messages": [_mark_prefix(message) if self.cache_marks else message for message in request.messages],
            self.limit: decoding.max_tokens,
        }
        if self.temperature:
            body["temperature"] = decoding.temperature
        # Optional settings are sent only where they are set: the fewer fields, the fewer a server can refuse.
        if decoding.top_p != 1.0:
            body["top_p"] = decoding.top_p
        if (seed := request.seed) is not None and self.seed is not None:
            body[self.seed] = seed
        if decoding.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": decoding.top_logprobs}
        if decoding.thinking is not None and self.template:
            # The form of vLLM, SGLang and llama.cpp; templates without this switch ignore it.
            body["chat_template_kwargs"] = {"enable_thinking": decoding.thinking}
        if decoding.effort is not None:
            body["reasoning_effort"] = decoding.effort
        return body | self._schema_settings(request)

    def _schema_settings(self, request: Request) -> dict[str, Any]:
        if request.schema is None:
            return {}
        name, schema = request.schema.name, request.schema.schema
        if not self.by_tool:
            json_schema = {"name": name, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": json_schema}}
        return {
            "tools": [{"type": "function", "function": {"name": name, "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": name}},
        }


def _mark_prefix(message: PromptMessage) -> Any:
    """Return a system message as a text part with a mark; any other message as it is."""
    # The instructions of a question are the same for all records, so all that follows the first one reads them cached.
    if message["role"] != "system":
        return message
    part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
    return {"role": "system", "content": [part]}


def read_messages(body: JsonObject) -> tuple[PromptMessage, ...]:
    """Return the messages of a request body without the marks of a dialect."""
    contents = [(message["role"], message["content"]) for message in body["messages"]]
    return tuple(
        PromptMessage(role=role, content=content if isinstance(content, str) else content[0]["text"])
        for role, content in contents
    )


def _refuses(message: str, field: str) -> bool:
    """Return whether a server refuses a field itself; a value out of range is the user's to correct."""
    # The words must be near each other: some servers repeat the whole request in their message.
    before = rf"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|extra_forbidden)[^.{{}}]{{0,60}}\b{field}\b"
    after = (
        rf"\b{field}\b[^.{{}}]{{0,60}}"
        r"(?:deprecated|not supported|unsupported|not permitted|not allowed|does not support)"
    )
    return re.search(f"{before}|{after}", message, re.IGNORECASE) is not None


BEARER_HEADER = "authorization"
"""Header of a key that is sent as ``Bearer KEY``; a key in any other header is sent alone."""


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """A provider with a name, base URL and key variable."""

    base_url: str
    """Base URL; each ``{field}`` is filled from ``settings``."""
    key_variable: str | None
    """Environment variable of its API key; None where it needs no key."""
    key_header: str = BEARER_HEADER
    """Header that carries the API key."""
    token_variable: str | None = None
    """Environment variable of an access token, sent as a bearer token where the API key is not set."""
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Environment variables of each field of the base URL; the first one that is set counts."""
    version_variables: tuple[str, ...] = ()
    """Environment variables of an API version, which is sent as the query ``api-version``."""
    dated_url: str = ""
    """Base URL for an API version that is a date; the model is part of it."""
    model_prefix: str = ""
    """Publisher to add to a model that is named without one."""
    own_deployments: bool = False
    """Whether users choose the names of models, so that a name counts only together with the resource it is on."""
    dialect: RequestDialect = field(default_factory=RequestDialect)
    """Request body to begin with."""
    cache_marked_makers: tuple[str, ...] = ()
    """Beginnings of the names of models whose prompts are cached only where a request marks the prefix."""
    logprobs: bool = True
    """Whether log-probabilities are reported in OpenAI's form."""
    notes: str = ""
    """What users of this provider should know, for the guide."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that decide where requests go, each with the variable of the key that goes there."""
        names = [name for names in self.settings.values() for name in names]
        return {} if self.key_variable is None else dict.fromkeys(names, self.key_variable)


MODEL_PROVIDERS: Mapping[str, ModelProvider] = {
    "anthropic": ModelProvider(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        # Schemas as tools: the strict mode of response_format refuses bounds such as minItems. A seed would be ignored.
        dialect=RequestDialect(by_tool=True, seed=None),
        logprobs=False,
        notes="no seed, no log-probabilities; newer models take no temperature",
    ),
    "azure": ModelProvider(
        "{endpoint}/openai/v1",
        "AZURE_OPENAI_API_KEY",
        key_header="api-key",
        token_variable="AZURE_OPENAI_AD_TOKEN",
        settings={"endpoint": ("AZURE_OPENAI_ENDPOINT",)},
        version_variables=("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"),
        dated_url="{endpoint}/openai/deployments/{model}",
        own_deployments=True,
        notes="the model is the name of your deployment; `AZURE_OPENAI_API_VERSION` selects a dated version of the API",
    ),
    "bedrock": ModelProvider(
        "https://bedrock-runtime.{region}.amazonaws.com/openai/v1",
        "AWS_BEARER_TOKEN_BEDROCK",
        settings={"region": ("AWS_REGION", "AWS_DEFAULT_REGION")},
        notes="models with chat completions, such as `openai.…`; Claude, Nova and Llama through `inspect/bedrock/…`",
    ),
    "deepseek": ModelProvider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": ModelProvider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": ModelProvider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": ModelProvider(
        "https://api.groq.com/openai/v1", "GROQ_API_KEY", logprobs=False, notes="no log-probabilities"
    ),
    "mistral": ModelProvider(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        dialect=RequestDialect(seed="random_seed"),
        logprobs=False,
        notes="the seed is sent as `random_seed`; no log-probabilities",
    ),
    "ollama": ModelProvider("http://127.0.0.1:11434/v1", None, notes="your own server; no key"),
    "openai": ModelProvider("https://api.openai.com/v1", "OPENAI_API_KEY", notes="`OPENAI_BASE_URL` redirects it"),
    "openrouter": ModelProvider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        # Models of other makers are cached without marks. Anthropic's own compatible route ignores marks.
        cache_marked_makers=("anthropic/",),
        notes="name the model with its maker: `openrouter/a/b`; prompts of `anthropic/…` are marked for its cache",
    ),
    "together": ModelProvider(
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        logprobs=False,
        notes="name the model with its maker: `together/a/b`; log-probabilities in a form of its own",
    ),
    "vertex": ModelProvider(
        "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/endpoints/openapi",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        settings={"project": ("GOOGLE_CLOUD_PROJECT",), "location": ("GOOGLE_CLOUD_LOCATION",)},
        model_prefix="google/",
        notes="the token is that of `gcloud auth print-access-token` and lasts an hour",
    ),
    "vllm": ModelProvider("http://127.0.0.1:8000/v1", None, notes="your own server; no key"),
    "xai": ModelProvider("https://api.x.ai/v1", "XAI_API_KEY"),
}

# Makers and model names that people write for a provider; other spellings are found by likeness.
_OTHER_NAMES = {
    "amazon": "bedrock",
    "aws": "bedrock",
    "claude": "anthropic",
    "google": "gemini",
    "gpt": "openai",
    "grok": "xai",
}
_SETTING = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
"""Pattern of a region, project or location: no character that would lead to another host or path."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d.*")


def find_provider_by_url(base_url: str) -> str | None:
    """Return the name of the provider with this base URL; None for any other server."""
    return next((name for name, provider in MODEL_PROVIDERS.items() if provider.base_url == base_url), None)


def find_provider_address(name: str, model: str, environ: Mapping[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return base URL and query for a provider's model; raise where a variable it needs is missing or malformed."""
    provider = MODEL_PROVIDERS[name]
    settings = {setting: _first_value(variables, environ) for setting, variables in provider.settings.items()}
    if missing := [setting for setting, (variable, _) in settings.items() if not variable]:
        needed = " and ".join(" or ".join(provider.settings[setting]) for setting in missing)
        raise SettingError(f"{name}/{model}: no {' and no '.join(missing)} is given. Set {needed}.")
    values = {
        setting: _check_setting(f"{name}/{model}", setting, variable, value)
        for setting, (variable, value) in settings.items()
    }
    version = _first_value(provider.version_variables, environ)[1]
    template = provider.dated_url if _DATE.fullmatch(version) else provider.base_url
    base_url = template.format(model=quote(model, safe=""), **values)
    # The global location has no region in its host.
    base_url = base_url.replace("https://global-aiplatform.", "https://aiplatform.")
    return base_url, (("api-version", version),) if version else ()


def read_key(environ: Mapping[str, str], variable: str) -> str:
    """Return a key of the environment without blanks around it; empty where it is not set.

    Raises:
        SettingError: The value holds a character that no header can carry.
    """
    # Files from other systems bring a byte order mark or a carriage return.
    key = environ.get(variable, "").strip("\ufeff\u200b \t\r\n")
    for position, character in enumerate(key, start=1):
        if not "!" <= character <= "~":
            raise SettingError(
                f"{variable}: character {position} of {len(key)} is U+{ord(character):04X}, which no key holds. Copy "
                "the key again."
            )
    return key


def _first_value(variables: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the first variable that is set and its value; two empty texts where none is."""
    return next(((name, value) for name in variables if (value := environ.get(name, "").strip())), ("", ""))


def _check_setting(model: str, setting: str, variable: str, value: str) -> str:
    if setting == "endpoint":
        # Portals show the endpoint with and without the path.
        return value.rstrip("/").removesuffix("/v1").removesuffix("/openai")
    if not _SETTING.fullmatch(value):
        raise SettingError(f"{model}: {variable} is not a {setting}. Use letters, digits and _.:- only.")
    return value


def find_resource_name(base_url: str) -> str | None:
    """Return the resource of an Azure host, ``mine`` of ``mine.openai.azure.com``; None for other hosts."""
    host = urlsplit(base_url).hostname or ""
    return host.partition(".")[0] if host.endswith(".azure.com") else None


def describe_unknown_provider(name: str) -> str:
    """Return the message for ``provider/model`` with a provider that is not in the table."""
    provider, _, model = name.partition("/")
    alias = _OTHER_NAMES.get(provider.lower())
    nearest = [alias] if alias else get_close_matches(provider.lower(), MODEL_PROVIDERS, n=1)
    hint = f" Did you mean {nearest[0]}/{model}?" if nearest else ""
    return (
        f"{name}: there is no provider {provider!r}.{hint} Use one of {', '.join(MODEL_PROVIDERS)}; "
        "inspect/PROVIDER/MODEL for other providers of Inspect (needs: pip install 'eclose[inspect]'; not for "
        "generate); or give the base URL of your server (--base-url)."
    )
