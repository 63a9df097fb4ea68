"""Any OpenAI-compatible server as a ``ChatModel``: one request, one attempt, one deadline.

Nothing is tried again here: that is for ``patience``. Where a server refuses the usual form of a request it is asked
in another one, once; which form it took is remembered, since it holds for the model and not for the record.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from eclose.errors import SettingError, UserError
from eclose.models.openai.dialect import Dialect
from eclose.models.openai.failures import (
    CallFailure,
    FailureKind,
    HttpResponse,
    UnreadableBody,
    classify_exception,
    classify_status,
    excerpt,
)
from eclose.models.openai.parse_reply import parse_reply
from eclose.store.records.strict_json import parse_object

try:
    import aiohttp
    import httpx2
    import openai
except ImportError as missing:
    raise UserError("talking to a model server needs openai and aiohttp. Run: pip install 'eclose[chat]'") from missing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from eclose.models.interface import Reply, Request

_CONNECT_SECONDS = 10.0
_NO_KEY = "none"
# All that is sent besides the body. The client would also tell the provider about this machine, and would send an
# organisation or headers named in the environment to whoever is asked.
_SENT = frozenset({"accept", "authorization", "content-length", "content-type", "host", "user-agent"})


@dataclass(frozen=True, slots=True)
class Service:
    """A provider that is known by name."""

    base_url: str
    key_variable: str | None
    """Where its key is found; None where it asks for none."""


SERVICES: Mapping[str, Service] = {
    "deepseek": Service("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": Service("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Service("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": Service("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Service("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": Service("http://127.0.0.1:11434/v1", None),
    "openai": Service("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": Service("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Service("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": Service("http://127.0.0.1:8000/v1", None),
    "xai": Service("https://api.x.ai/v1", "XAI_API_KEY"),
}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens, and the name it goes by in records and in the ledger."""

    url: str | None
    """None where the model's name, or the environment, says it."""
    name: str | None = None
    """None for its host, port and path. Two addresses of one server share replies when they share a name."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model is found and by which key."""

    base_url: str
    model: str
    """Its name there; empty for the only one there is."""
    key: SecretStr | None = None
    server: str | None = None
    """The name of a server of one's own; None for its host, port and path."""

    @property
    def name(self) -> str:
        """``provider/model``, or ``host:port/model`` for a server of one's own: replies are kept by this name."""
        known = [name for name, service in SERVICES.items() if service.base_url == self.base_url]
        return f"{known[0] if known else self.server or server_name(self.base_url)}/{self.model}"


def server_name(base_url: str) -> str:
    """Return host, port and path of a base URL as one word without a slash.

    >>> server_name("http://127.0.0.1:8000/v1"), server_name("https://gateway.example/openai/v1")
    ('127.0.0.1:8000', 'gateway.example~openai')
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    port = "" if parts.port is None else f":{parts.port}"
    path = parts.path.rstrip("/").removesuffix("/v1").replace("/", "~")
    return f"{f'[{host}]' if ':' in host else host}{port}{path}"


def find_route(
    name: str,
    *,
    base_url: str | ServerAddress | None = None,
    key: SecretStr | None = None,
    environ: Mapping[str, str] | None = None,
    keyless: bool = False,
) -> Route:
    """Return the way to a model named ``provider/model``, or at a base URL given here, in the name or the environment.

    A key goes to the provider it belongs to: ``OPENAI_API_KEY`` to OpenAI and to ``OPENAI_BASE_URL``, ``GROQ_API_KEY``
    to Groq, and so on. ``ECLOSE_API_KEY`` goes to a server given by its address and to ``vllm/…`` and ``ollama/…``,
    never to a provider that has a variable of its own. A server given by its address is named by host and port unless
    the address, or ``ECLOSE_SERVER_NAME``, names it. A provider without a key is refused unless ``keyless``, for runs
    that send nothing.
    """
    environ = os.environ if environ is None else environ
    address = base_url if isinstance(base_url, ServerAddress) else ServerAddress(base_url)
    base_url = address.url
    if name.startswith(("http://", "https://")):
        base_url, name = name, ""
    provider, _, rest = name.partition("/")
    own = base_url or environ.get("ECLOSE_BASE_URL")
    usual = environ.get("OPENAI_BASE_URL")
    if own:
        route, variable = Route(check_base_url(own), name), None
    elif rest and provider in SERVICES and not (provider == "openai" and usual):
        route, variable = Route(SERVICES[provider].base_url, rest), None
    elif usual:
        route, variable = Route(check_base_url(usual), name.removeprefix("openai/")), "OPENAI_API_KEY"
    elif rest:
        raise SettingError(_unknown_provider(name, provider))
    else:
        route, variable = Route(SERVICES["openai"].base_url, name), None
    server = _server(address.name or environ.get("ECLOSE_SERVER_NAME"))
    return replace(route, key=key or _find_key(route, variable, environ, keyless=keyless), server=server)


_THROUGH_INSPECT = {
    "anthropic": "anthropic/",
    "claude": "anthropic/",
    "azure": "openai/azure/",
    "azureai": "azureai/",
    "bedrock": "bedrock/",
    "aws": "bedrock/",
    "google": "google/",
    "vertex": "google/vertex/",
    "vertexai": "google/vertex/",
}
"""Providers that do not speak this protocol, and how Inspect names their models."""


def _unknown_provider(name: str, provider: str) -> str:
    if (path := _THROUGH_INSPECT.get(provider.lower())) is not None:
        model = name.partition("/")[2]
        return (
            f"{name}: {provider} is reached through Inspect. Use inspect/{path}{model} (needs: pip install "
            "'eclose[inspect]'; generate takes no such model), or give the base URL of a gateway to it (--base-url)."
        )
    return (
        f"{name}: there is no provider {provider!r}. Use one of {', '.join(SERVICES)}, inspect/PROVIDER/MODEL for "
        "anthropic, azure, bedrock, vertex and others, or give the base URL of your server (--base-url)."
    )


def _server(name: str | None) -> str | None:
    if name and not re.fullmatch(r"[\w.:~\[\]-]{1,100}", name):
        raise SettingError(f"--server-name {excerpt(name)!r}: use letters, digits and .:~[]_- only.")
    return name or None


def _find_key(route: Route, variable: str | None, environ: Mapping[str, str], *, keyless: bool) -> SecretStr | None:
    at_home = [service for service in SERVICES.values() if service.base_url == route.base_url]
    own = at_home[0].key_variable if at_home else variable
    key = environ.get(own or "")
    if at_home and own and not key and not keyless:
        raise SettingError(f"{route.name}: no API key. Set {own}.")
    if not (at_home and own):
        key = key or environ.get("ECLOSE_API_KEY")
    return SecretStr(key) if key else None


def check_base_url(base_url: str) -> str:
    """The base URL without a slash at the end, if it is one a key may be sent to."""
    try:
        parts = urlsplit(base_url.strip())
        _ = parts.port
    except ValueError as error:
        raise SettingError(f"the base URL is none: {error}.") from None
    shown = excerpt(f"{parts.scheme}://{parts.hostname}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"{shown}: a base URL begins with http:// or https:// and names a host.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingError(f"{shown}: a base URL holds no user, query or fragment. Keys go into ECLOSE_API_KEY.")
    if _link_local(parts.hostname):
        raise SettingError(f"{shown}: link-local addresses serve machine metadata, not models.")
    return base_url.strip().rstrip("/")


def _link_local(host: str) -> bool:
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How far one call may go."""

    deadline: float = 120.0
    """Seconds for a call from the first byte sent to the last received."""
    connections: int = 64
    """As many as requests may be under way."""
    largest_reply: int = 8 * 2**20
    """Bytes of a body after decompression; only many log-probabilities come near it."""

    def __post_init__(self) -> None:
        """Refuse limits that let nothing through."""
        if not (self.deadline > 0 and self.connections >= 1 and self.largest_reply >= 1):
            raise SettingError("deadline, connections and largest_reply must be positive.")


class Endpoint:
    """A ``ChatModel`` behind HTTP. Use it in an ``async with``, or close it."""

    def __init__(self, route: Route, settings: EndpointSettings | None = None) -> None:
        if not route.model:
            raise SettingError(f"{route.base_url}: which model? Name one of those it serves.")
        self._route = route
        self._settings = settings or EndpointSettings()
        self._dialect = Dialect()
        self._client = build_client(route, self._settings)

    @property
    def name(self) -> str:
        """What records say of who answered."""
        return self._route.name

    def __repr__(self) -> str:
        """Name and place; the key stays out."""
        return f"Endpoint({self.name!r}, base_url={self._route.base_url!r})"

    async def __aenter__(self) -> Self:
        """Nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def complete(self, request: Request) -> Reply:
        """The reply; a ``CallFailure`` where there is none that can be used."""
        try:
            async with asyncio.timeout(self._settings.deadline):
                outcome = await self._ask(request)
        except TimeoutError:
            outcome = CallFailure(FailureKind.TIMEOUT, f"no whole reply within {self._settings.deadline:g} s.")
        if isinstance(outcome, CallFailure):
            # Without the client's own error behind it: that one holds the request, and the request holds the key.
            raise outcome from None
        return outcome

    async def _ask(self, request: Request) -> Reply | CallFailure:
        """Ask in the form that worked last; a server that refuses the form is asked in the next one, and never back."""
        while True:
            dialect = self._dialect
            by_tool = dialect.by_tool and request.schema is not None
            answer = await self._send(dialect.body(self._route.model, request))
            outcome = parse_reply(answer, request, by_tool=by_tool, now=time.time(), key=self._route.key)
            if not isinstance(outcome, CallFailure) or (learned := dialect.after(outcome)) is None:
                return outcome
            self._dialect = learned

    async def _send(self, body: dict[str, Any]) -> HttpResponse | Exception:
        try:
            response = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        except openai.APIStatusError as error:
            response = error.response
        except (openai.OpenAIError, httpx2.HTTPError, aiohttp.ClientError, UnreadableBody) as error:
            return error
        return HttpResponse(response.status_code, dict(response.headers), response.content)


async def open_endpoint(route: Route, settings: EndpointSettings | None = None) -> Endpoint:
    """The endpoint at a route; where it names no model, the only one that is served there."""
    if route.model:
        return Endpoint(route, settings)
    served = await _served(route, settings or EndpointSettings())
    if len(served) != 1:
        raise SettingError(f"{route.base_url} serves {', '.join(served) or 'no model'}. Name the one you want.")
    return Endpoint(replace(route, model=served[0]), settings)


async def _served(route: Route, settings: EndpointSettings) -> list[str]:
    """Return the names of the models that a server lists; raise with what is wrong with the server otherwise."""
    secret = route.key.get_secret_value() if route.key else ""
    try:
        async with build_client(route, settings) as client, asyncio.timeout(settings.deadline):
            response = await client.get("/models", cast_to=httpx2.Response)
        models = parse_object(response.content)["data"]
        return [str(model["id"]) for model in models]
    except TimeoutError:
        problem = f"no answer within {settings.deadline:g} s. Is this the address of a model server?"
    except openai.APIStatusError as error:
        answer = HttpResponse(error.response.status_code, dict(error.response.headers), error.response.content)
        problem = (
            f"cannot list its models ({classify_status(answer, time.time(), secret).problem.rstrip('.')}). Name one."
        )
    except (openai.OpenAIError, httpx2.HTTPError, aiohttp.ClientError, UnreadableBody) as error:
        failure = classify_exception(error, secret)
        if failure.kind is FailureKind.CONNECTION:
            problem = f"cannot connect: {failure.problem} Is the server running, and is this its port?"
        else:
            problem = f"cannot list its models ({failure.problem.rstrip('.')}). Name one."
    except (UserError, LookupError, TypeError):
        problem = "cannot list its models (the answer is no list of models). Name one."
    raise SettingError(f"{route.base_url}: {problem}")


def build_client(route: Route, settings: EndpointSettings) -> openai.AsyncOpenAI:
    """The stock client, kept from trying again, from following anybody and from telling more than it is asked."""
    from eclose.models.openai.response_body import bound_body  # noqa: PLC0415 - needs what was looked for above

    key = route.key.get_secret_value() if route.key is not None else _NO_KEY

    async def send_little(request: httpx2.Request) -> None:
        for name in [name for name in request.headers if name not in _SENT]:
            del request.headers[name]
        request.headers["authorization"] = f"Bearer {key}"
        # No compression is asked for; some proxies compress anyway.
        request.headers["accept-encoding"] = "identity"

    async def read_little(response: httpx2.Response) -> None:
        bound_body(response, settings.largest_reply)

    http = openai.DefaultAioHttpClient(
        follow_redirects=False,
        timeout=httpx2.Timeout(None, connect=min(_CONNECT_SECONDS, settings.deadline)),
        limits=httpx2.Limits(
            max_connections=settings.connections, max_keepalive_connections=settings.connections, keepalive_expiry=30.0
        ),
        event_hooks={"request": [send_little], "response": [read_little]},
    )
    # SDK retries are off: patience is the only one who tries again.
    return openai.AsyncOpenAI(api_key=key, base_url=route.base_url, max_retries=0, http_client=http)
