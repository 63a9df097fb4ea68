"""Any OpenAI-compatible server as a ``ChatModel``: one request, one attempt, one deadline.

No failure is retried here; ``calls.retry`` is the only layer that retries. Where a server refuses the usual request
body, the next variant is sent at once, and the variant it accepts is used for all later requests to the model.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address
from socket import inet_aton
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from eclose.calls.http.client import HTTP_ERRORS, LARGEST_BODY, HttpClient
from eclose.calls.http.failures import (
    CallFailure,
    CallFailureKind,
    HttpResponse,
    classify_http_exception,
    classify_http_status,
    excerpt_server_text,
)
from eclose.calls.http.parse_reply import parse_http_reply
from eclose.calls.http.providers import (
    BEARER_HEADER,
    MODEL_PROVIDERS,
    RequestDialect,
    describe_unknown_provider,
    find_provider_address,
    find_provider_by_url,
    find_resource_name,
    read_key,
)
from eclose.errors import SettingError, UserError
from eclose.files.json_reader import parse_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.http.providers import ModelProvider
    from eclose.calls.model import Reply, Request

CALL_SECONDS = 120.0
"""Default deadline of a call, from the first byte sent to the last byte received."""
_NO_KEY = "none"
"""Sent where there is no key: some servers demand a key and take any."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Base URL of a server and its name in records and in the ledger."""

    url: str | None
    """Base URL; None to take it from the model's name or the environment."""
    name: str | None = None
    """Name of the server; None for host, port and path. Servers with one name share cached replies."""


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Base URL, model name and API key for calls to a model."""

    base_url: str
    model: str
    """Model name on the server; empty for the only model of the server."""
    key: SecretStr | None = None
    server: str | None = None
    """Name of a self-hosted server or of a resource with deployments; None to take it from the base URL."""
    provider: str | None = None
    """Name of the provider; None for a self-hosted server, and to find it by the base URL."""
    query: tuple[tuple[str, str], ...] = ()
    """Query of every request, such as an API version."""
    key_header: str = BEARER_HEADER
    """Header that carries the key."""

    def __post_init__(self) -> None:
        if self.provider is None:
            object.__setattr__(self, "provider", find_provider_by_url(self.base_url))

    def open_client(self, largest: int = LARGEST_BODY) -> HttpClient:
        """Return a client of the server, which sends the key; ``largest`` is the limit of a body in bytes."""
        key = _NO_KEY if self.key is None else self.key.get_secret_value()
        value = f"Bearer {key}" if self.key_header == BEARER_HEADER else key
        return HttpClient(self.base_url, {self.key_header: value}, query=self.query, largest=largest)

    @property
    def service(self) -> ModelProvider | None:
        """Row of the provider in the table; None for a self-hosted server."""
        return None if self.provider is None else MODEL_PROVIDERS[self.provider]

    @property
    def dialect(self) -> RequestDialect:
        """Request body to begin with."""
        if self.service is None:
            return RequestDialect()
        marked = self.model.startswith(self.service.cache_marked_makers)
        return replace(self.service.dialect, cache_marks=True) if marked else self.service.dialect

    @property
    def name(self) -> str:
        """``provider/model``, or ``host:port/model`` for a self-hosted server; cached replies are found by it.

        Deployments are named by their users, so their resource is part of the name: ``azure:resource/deployment``.
        """
        if self.service is not None and not self.service.own_deployments:
            return f"{self.provider}/{self.model}"
        if self.provider is None:
            return f"{self.server or format_server_name(self.base_url)}/{self.model}"
        resource = self.server or find_resource_name(self.base_url) or format_server_name(self.base_url)
        return f"{self.provider}:{resource}/{self.model}"


def format_server_name(base_url: str) -> str:
    """Return host, port and path of a base URL as one word without a slash.

    >>> format_server_name("http://127.0.0.1:8000/v1"), format_server_name("https://gateway.example/openai/v1")
    ('127.0.0.1:8000', 'gateway.example~openai')
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    port = "" if parts.port is None else f":{parts.port}"
    path = parts.path.rstrip("/").removesuffix("/v1").replace("/", "~")
    return f"{f'[{host}]' if ':' in host else host}{port}{path}"


def find_model_route(
    name: str,
    *,
    base_url: str | ServerAddress | None = None,
    key: SecretStr | None = None,
    environ: Mapping[str, str] | None = None,
    keyless: bool = False,
) -> ModelRoute:
    """Return the route to ``provider/model``, or to a base URL given here, as the name or in the environment.

    A key goes to the provider it belongs to: ``OPENAI_API_KEY`` to OpenAI and to ``OPENAI_BASE_URL``, ``GROQ_API_KEY``
    to Groq, and so on. ``ECLOSE_API_KEY`` goes to a server given by its address and to ``vllm/…`` and ``ollama/…``,
    never to a provider with its own variable. A server given by its address is named by host and port unless the
    address or ``ECLOSE_SERVER_NAME`` names it. A provider without a key is refused unless ``keyless``, for runs that
    send nothing.
    """
    environ = os.environ if environ is None else environ
    address = base_url if isinstance(base_url, ServerAddress) else ServerAddress(base_url)
    base_url = address.url
    if name.startswith(("http://", "https://")):
        base_url, name = name, ""
    # Precedence: an explicit base URL, ECLOSE_BASE_URL, a named provider, OPENAI_BASE_URL, OpenAI itself.
    provider, _, model = name.partition("/")
    server_url = base_url or environ.get("ECLOSE_BASE_URL")
    openai_url = environ.get("OPENAI_BASE_URL")
    variable = None
    if server_url:
        route = ModelRoute(check_base_url(server_url), name)
    elif model and provider in MODEL_PROVIDERS and not (provider == "openai" and openai_url):
        service = MODEL_PROVIDERS[provider]
        # One spelling in records and requests, whether or not the publisher is named.
        model = model if "/" in model else f"{service.model_prefix}{model}"
        address_url, query = find_provider_address(provider, model, environ)
        route = ModelRoute(
            check_base_url(address_url), model, provider=provider, query=query, key_header=service.key_header
        )
    elif openai_url:
        route, variable = ModelRoute(check_base_url(openai_url), name.removeprefix("openai/")), "OPENAI_API_KEY"
    elif model:
        raise SettingError(describe_unknown_provider(name))
    else:
        route = ModelRoute(MODEL_PROVIDERS["openai"].base_url, name)
    server = address.name or environ.get("ECLOSE_SERVER_NAME")
    if server and not re.fullmatch(r"[\w.:~\[\]-]{1,100}", server):
        raise SettingError(f"ECLOSE_SERVER_NAME {excerpt_server_text(server)!r}: use letters, digits and .:~[]_- only.")
    route = replace(route, server=server or None)
    return replace(route, key=key) if key else _add_key(route, variable, environ, keyless=keyless)


def _add_key(route: ModelRoute, variable: str | None, environ: Mapping[str, str], *, keyless: bool) -> ModelRoute:
    service = route.service
    key_variable = variable if service is None else service.key_variable
    key = read_key(environ, key_variable) if key_variable else ""
    token_variable = None if service is None else service.token_variable
    if not key and token_variable and (token := read_key(environ, token_variable)):
        return replace(route, key=SecretStr(token), key_header=BEARER_HEADER)
    if service is not None and key_variable and not key and not keyless:
        variables = [name for name in (key_variable, token_variable) if name]
        raise SettingError(
            f"{route.name}: no API key. Set {' or '.join(variables)}. A server of your own is named by its address: "
            "--base-url http://host:port/v1."
        )
    # ECLOSE_API_KEY is for self-hosted servers: it never goes to a provider with its own variable.
    if not (service is not None and key_variable):
        key = key or read_key(environ, "ECLOSE_API_KEY")
    return replace(route, key=SecretStr(key) if key else None)


def check_base_url(base_url: str) -> str:
    """Return the base URL without a slash at the end; raise where no key may be sent to it."""
    try:
        parts = urlsplit(base_url.strip())
        # Reading the port is what makes urlsplit check it.
        _ = parts.port
    except ValueError as error:
        raise SettingError(f"the base URL is not a URL: {error}.") from None
    origin = excerpt_server_text(f"{parts.scheme}://{parts.hostname}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"{origin}: a base URL begins with http:// or https:// and names a host.")
    # A key inside the URL would end up in records and messages, so the message quotes scheme and host only.
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingError(f"{origin}: a base URL holds no user, query or fragment. Keys go into ECLOSE_API_KEY.")
    # 169.254.169.254 hands out the credentials of a cloud machine to any process on it.
    if _link_local(parts.hostname):
        raise SettingError(f"{origin}: link-local addresses serve machine metadata, not models.")
    return base_url.strip().rstrip("/")


def _link_local(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        try:
            # Resolvers accept an IPv4 address as one number too, decimal or hexadecimal.
            address = ip_address(inet_aton(host))
        except OSError:
            return False
    # ::ffff:a.b.c.d reaches the IPv4 address inside it.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_link_local


class Endpoint:
    """A ``ChatModel`` behind HTTP. Use it in an ``async with``."""

    def __init__(self, route: ModelRoute, *, deadline: float = CALL_SECONDS, largest_reply: int = LARGEST_BODY) -> None:
        if not route.model:
            raise SettingError(f"{route.base_url}: no model is named. Name one of the models of this server.")
        if deadline <= 0:
            raise SettingError("deadline must be positive.")
        self._route = route
        self._deadline = deadline
        self._dialect = route.dialect
        self._client = route.open_client(largest_reply)
        self.name = route.name
        """Name of the model in records and call keys."""

    def __repr__(self) -> str:
        # Without the key.
        return f"Endpoint({self.name!r}, base_url={self._route.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def complete(self, request: Request) -> Reply:
        """Return the reply; raise ``CallFailure`` where there is no usable one."""
        service = self._route.service
        if request.decoding.top_logprobs is not None and service is not None and not service.logprobs:
            # Refused before it is sent: some providers ignore the setting and bill the call.
            problem = f"{self._route.provider} reports no log-probabilities. Use another provider or your own server."
            raise CallFailure(CallFailureKind.DENIED, problem, unpaid=True)
        try:
            async with asyncio.timeout(self._deadline):
                outcome = await self._send(request)
        except TimeoutError:
            outcome = CallFailure(CallFailureKind.TIMEOUT, f"no complete reply within {self._deadline:g} s.")
        if isinstance(outcome, CallFailure):
            # "from None" drops the client's error, which holds the request and with it the key.
            raise outcome from None
        return outcome

    async def _send(self, request: Request) -> Reply | CallFailure:
        """Send the body variant that worked last; where it is refused, the next one, which is kept."""
        while True:
            dialect = self._dialect
            by_tool = dialect.by_tool and request.schema is not None
            response: HttpResponse | Exception
            try:
                response = await self._client.send(
                    "POST", "/chat/completions", dialect.body(self._route.model, request)
                )
            except HTTP_ERRORS as error:
                response = error
            outcome = parse_http_reply(response, request, by_tool=by_tool, now=time.time(), key=self._route.key)
            # Compared with the dialect that was sent: a concurrent call may have changed the present one.
            if not isinstance(outcome, CallFailure) or (learned := dialect.after(outcome)) is None:
                return outcome
            # Once for all calls in flight, each of which may be refused.
            if dialect is self._dialect:
                learned.warn_of_omission(dialect, self.name)
            self._dialect = learned


async def open_endpoint(route: ModelRoute, deadline: float = CALL_SECONDS) -> Endpoint:
    """Return the endpoint of a route; where the route names no model, ask the server for its only one."""
    if route.model:
        return Endpoint(route, deadline=deadline)
    models = await _list_models(route, deadline)
    if len(models) != 1:
        raise SettingError(f"{route.base_url} serves {', '.join(models) or 'no model'}. Name the one you want.")
    return Endpoint(replace(route, model=models[0]), deadline=deadline)


async def _list_models(route: ModelRoute, deadline: float) -> list[str]:
    async with route.open_client() as client:
        try:
            async with asyncio.timeout(deadline):
                response = await client.send("GET", "/models")
            if response.status == 200:
                return [str(model["id"]) for model in parse_json_object(response.body)["data"]]
            failure = classify_http_status(response, time.time(), client.secrets)
        except HTTP_ERRORS as error:
            failure = classify_http_exception(error, client.secrets)
        except TimeoutError:
            problem = f"no answer within {deadline:g} s. Is this the address of a model server?"
            raise SettingError(f"{route.base_url}: {problem}") from None
        except (UserError, LookupError, TypeError):
            failure = CallFailure(CallFailureKind.DENIED, "the answer is not a list of models")
    if failure.kind is CallFailureKind.CONNECTION:
        problem = f"cannot connect: {failure.problem} Is the server running, and is this its port?"
    else:
        problem = f"cannot list its models ({failure.problem.rstrip('.')}). Name one."
    raise SettingError(f"{route.base_url}: {problem}")
