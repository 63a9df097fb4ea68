"""Requests keep their bytes: the client of the openai package, release 3.49, sent those in request_bodies.jsonl."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from aiohttp import web

from eclose.calls.http.endpoint import Endpoint, find_model_route
from eclose.calls.http.failures import CallFailure
from eclose.calls.http.providers import MODEL_PROVIDERS
from eclose.calls.model import Decoding, ReplySchema, Request
from tests.calls.http.site import site

PATH = Path(__file__).with_name("request_bodies.jsonl")
ENVIRON = {
    "AZURE_OPENAI_API_VERSION": "2024-10-21",
    "AWS_REGION": "eu-west-1",
    "GOOGLE_CLOUD_PROJECT": "acme-prod",
    "GOOGLE_CLOUD_LOCATION": "europe-west4",
} | {provider.key_variable: "a" * 20 for provider in MODEL_PROVIDERS.values() if provider.key_variable}
MESSAGES = (
    {"role": "system", "content": 'Judge.\nQuote “as is”: / \\ " \u2028 \x7f é 漢 🎬'},
    {"role": "user", "content": "<b>1e400</b>\t&amp; \x01"},
)
SCHEMA = {
    "type": "object",
    "required": ["reason", "é"],
    "properties": {"reason": {"type": "string"}, "é": {"type": "boolean"}},
}
REQUESTS = {
    "text": Request(MESSAGES),
    "sampled": Request(MESSAGES, Decoding(1, 0.7, 0.95, 7, thinking=False, effort="low"), replica=1),
    "structured": Request(MESSAGES, Decoding(temperature=1e-7, seed=0), ReplySchema("verdict", SCHEMA)),
}


def record_requests() -> list[dict[str, str]]:
    """Return path and body of every request to every provider, whose hosts are a server of this test."""
    received: list[tuple[str, bytes]] = []

    async def handle(request: web.Request) -> web.Response:
        received.append((request.raw_path, await request.read()))
        return web.json_response({})

    async def main() -> list[dict[str, str]]:
        async with site(handle) as url:
            origin = url.removesuffix("/v1")
            for provider, request in product(MODEL_PROVIDERS, REQUESTS.values()):
                route = find_model_route(f"{provider}/ä b/c", environ=ENVIRON | {"AZURE_OPENAI_ENDPOINT": origin})
                path = route.base_url.partition("://")[2].partition("/")[2]
                async with Endpoint(replace(route, base_url=f"{origin}/{path}")) as model:
                    with pytest.raises(CallFailure):
                        await model.complete(request)
        return [
            {"provider": provider, "request": kind, "path": path, "body": body.decode()}
            for (provider, kind), (path, body) in zip(product(MODEL_PROVIDERS, REQUESTS), received, strict=True)
        ]

    return asyncio.run(main())


def test_requests_have_the_bytes_that_the_openai_client_sent():
    assert record_requests() == [json.loads(line) for line in PATH.read_text("ascii").splitlines()]
