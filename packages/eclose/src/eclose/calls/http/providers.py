"""Table of named providers: base URL, API key, settings and the request body that each accepts.

Every provider here has a route that is compatible with OpenAI's chat completions. A row records what the provider's own
documentation states; what a server refuses beyond that is learned from its refusals (``RequestDialect.after``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import quote, urlsplit

from eclose.calls.http.dialect import RequestDialect
from eclose.errors import SettingError

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


@dataclass(frozen=True, slots=True)
class ProviderAddress:
    """Where the requests for a model of a provider go."""

    base_url: str
    query: tuple[tuple[str, str], ...] = ()


def find_provider_by_url(base_url: str) -> str | None:
    """Return the name of the provider with this base URL; None for any other server."""
    return next((name for name, provider in MODEL_PROVIDERS.items() if provider.base_url == base_url), None)


def find_provider_address(name: str, model: str, environ: Mapping[str, str]) -> ProviderAddress:
    """Return the address of a provider's model; raise where a variable that it needs is missing or malformed."""
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
    return ProviderAddress(base_url, (("api-version", version),) if version else ())


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
    known = _OTHER_NAMES.get(provider.lower())
    nearest = [known] if known else get_close_matches(provider.lower(), MODEL_PROVIDERS, n=1)
    hint = f" Did you mean {nearest[0]}/{model}?" if nearest else ""
    return (
        f"{name}: there is no provider {provider!r}.{hint} Use one of {', '.join(MODEL_PROVIDERS)}; "
        "inspect/PROVIDER/MODEL for other providers of Inspect (needs: pip install 'eclose[inspect]'; not for "
        "generate); or give the base URL of your server (--base-url)."
    )
