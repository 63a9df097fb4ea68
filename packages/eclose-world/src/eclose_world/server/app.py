"""An OpenAI-compatible HTTP server on this machine for a model in Python code, with faults on request and a bill.

One event loop serves all requests, so counts are exact. Only loopback addresses are served: there is no authentication,
and the model may be told to misbehave.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from math import ceil
from typing import TYPE_CHECKING, Any

from aiohttp import web

from eclose.calls.forecast import WORLD_MODEL_NAME
from eclose.calls.tokens import PromptPrefixCache
from eclose.errors import UserError
from eclose.local_server import listen_for_stop_signals, refuse_other_hosts, require_loopback, start_listening
from eclose_world.server import send_body, wire
from eclose_world.server.batches import BatchBehaviour, BatchEndpoints
from eclose_world.server.bill import BillLine, ServerBill
from eclose_world.server.chat_requests import BadRequest, ChatRequest
from eclose_world.server.faults import ServerBehaviour, ServerFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from eclose_world.server.chat_requests import Handler, HandlerRegistry

ATTEMPT_HEADER = "X-Attempt"
MAX_REQUEST_BYTES = 64 * 2**20
"""Bytes; long evidence must be served, not refused."""
SHUTDOWN_GRACE_SECONDS = 1.0
"""Seconds that requests under way have when the server stops."""
_PAGE = "<!DOCTYPE html>\n<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>\n"
_ENDPOINTS = "POST /v1/chat/completions, /v1/files, /v1/batches, GET /v1/models, /healthz, /bill, POST /bill/reset"
_POLL_SECONDS = 0.05
"""Seconds between two checks whether a client is still connected."""
_STATUS = {
    ServerFault.SERVER_ERROR: (500, "The server had an error while processing your request."),
    ServerFault.UNAVAILABLE: (503, "The engine is currently overloaded, please try again later."),
}
_PAGES = {
    ServerFault.BAD_GATEWAY: (502, "502 Bad Gateway"),
    ServerFault.GZIP_PAGE: (502, "502 Bad Gateway"),
    ServerFault.HTML: (200, "Sign in"),
}

_log = logging.getLogger(__name__)


class ModelServer:
    """The endpoints of one running server."""

    def __init__(
        self, registry: HandlerRegistry, behaviour: ServerBehaviour, batches: BatchBehaviour | None = None
    ) -> None:
        self.base_url = ""
        """Where clients find it, with ``/v1``."""
        self.outage: ServerFault | None = None
        """What happens to every request from now on, whatever the behaviour says; None for no outage."""
        self._registry = registry
        self._behaviour = behaviour
        self._bill = ServerBill()
        self._batch_endpoints = BatchEndpoints(registry, behaviour, lambda: self._bill, batches or BatchBehaviour())
        self._in_flight = 0
        self._prompts = None if behaviour.prompt_cache is None else PromptPrefixCache(behaviour.prompt_cache)
        self._stopping = asyncio.Event()

    def bill(self, *, keys: bool = True) -> dict[str, Any]:
        """Return the counts so far; without ``keys`` only the totals."""
        return self._bill.as_json(keys=keys) | {"in_flight": self._in_flight}

    def reset_bill(self) -> None:
        """Start a new bill and count attempts from 1 again. Requests under way end on the old bill."""
        self._bill = ServerBill()

    def application(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        refuse_other_hosts(app)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._batch_endpoints.mount(app.router)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/bill", self._show_bill)
        app.router.add_post("/bill/reset", self._reset_bill)
        # The catch-all must come last: routes match in this order.
        app.router.add_route("*", "/{path:.*}", self._unknown)
        app.on_shutdown.append(self._stop)
        return app

    async def _stop(self, _: web.Application) -> None:
        self._stopping.set()

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": WORLD_MODEL_NAME, "object": "model", "created": 0, "owned_by": "eclose"}
        return web.json_response({"object": "list", "data": [model]})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _unknown(self, request: web.Request) -> web.Response:
        return _error(404, f"there is no {request.method} {request.path} here: {_ENDPOINTS}.")

    async def _show_bill(self, request: web.Request) -> web.Response:
        return web.json_response(self.bill(keys=request.query.get("keys") != "0"))

    async def _reset_bill(self, request: web.Request) -> web.Response:
        closed = self.bill(keys=request.query.get("keys") != "0")
        self.reset_bill()
        return web.json_response(closed)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """Parse and count a request, then answer it or reject it as busy."""
        data, bill = await request.read(), self._bill
        try:
            chat_request = ChatRequest.read(data)
            handler = self._registry.handler(chat_request.schema_name)
            attempt = _read_attempt(request)
        except BadRequest as problem:
            bill.rejected += 1
            return _error(400, str(problem), kind="invalid_request_error", code=problem.code, param=problem.param)
        line = bill.get_line(chat_request.key)
        # Counted before the busy check: a busy request is received, but no attempt.
        line.receive(time.monotonic())
        # No await between this check and the count below, so the limit is exact.
        if self._in_flight == self._behaviour.max_concurrency:
            line.busy += 1
            return self._reject_busy(line)
        self._in_flight += 1
        bill.peak_in_flight = max(bill.peak_in_flight, self._in_flight)
        try:
            call = _Attempt(request, chat_request, handler, line, attempt or line.attempts)
            return await self._answer(call)
        finally:
            self._in_flight -= 1

    async def _answer(self, call: _Attempt) -> web.StreamResponse:
        key, attempt = call.chat_request.key, call.attempt
        fault = self.outage or self._behaviour.draw_fault(key, attempt)
        if fault is not None:
            call.line.faulted[fault] += 1
        if fault is ServerFault.RATE_LIMIT:
            return self._reject_busy(call.line)
        # A rate-limited request is rejected at once, all others wait.
        if delay := self._behaviour.draw_delay(key, attempt):
            await asyncio.sleep(delay)
        if fault is not None and not fault.paid:
            return await self._fail(fault, call.request)
        return await self._reply(fault, call)

    def _reject_busy(self, line: BillLine) -> web.Response:
        wait = self._behaviour.retry_after
        line.not_before = time.monotonic() + wait
        # A date has whole seconds: rounded up, so that a client that obeys it is never early.
        date = formatdate(ceil(time.time() + wait), usegmt=True)
        after = date if self._behaviour.retry_after_as_date else f"{wait:g}"
        return _error(
            429, "Rate limit reached.", kind="requests", code="rate_limit_exceeded", headers={"Retry-After": after}
        )

    async def _fail(self, fault: ServerFault, request: web.Request) -> web.StreamResponse:
        if fault in _STATUS:
            status, message = _STATUS[fault]
            return _error(status, message)
        if fault in _PAGES:
            status, title = _PAGES[fault]
            page = web.Response(status=status, text=_PAGE.format(title), content_type="text/html")
            if fault is ServerFault.GZIP_PAGE:
                page.enable_compression(web.ContentCoding.gzip)
            return page
        if fault is ServerFault.HANG:
            await self._hang(request)
        send_body.close_connection(request)
        return web.Response()

    async def _hang(self, request: web.Request) -> None:
        """Send nothing until the client leaves, the time is over or the server stops."""
        end = time.monotonic() + self._behaviour.hang_seconds
        while (
            not _is_disconnected(request) and not self._stopping.is_set() and (remaining := end - time.monotonic()) > 0
        ):
            await self._wait(min(remaining, _POLL_SECONDS))

    async def _wait(self, seconds: float) -> None:
        """Wait so many seconds, or until the server stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _reply(self, fault: ServerFault | None, call: _Attempt) -> web.StreamResponse:
        """Let the model answer; from here on the reply is paid."""
        try:
            body = self._body(fault, call)
        except BadRequest as error:
            # A handler may refuse a request as malformed; nothing is paid for it.
            call.line.errors += 1
            return _error(400, str(error), kind="invalid_request_error", code=error.code, param=error.param)
        except Exception as error:
            # A bug in a handler must not look like a model fault, so client and log name it.
            call.line.errors += 1
            _log.exception("the handler of %s failed", call.chat_request.schema_name or "plain text")
            return _error(500, f"the handler failed: {error!r}", kind="handler_error")
        # Charged before sending: a client that leaves still pays.
        call.line.pay(body.prompt_tokens, body.completion_tokens, body.cached_tokens)
        headers = {"X-Request-Id": f"{call.chat_request.key}/{call.attempt}", "Content-Type": body.content_type}
        return await send_body.send_body_with_fault(
            fault, call.request, body.data, headers, self._behaviour, self._stopping
        )

    def _body(self, fault: ServerFault | None, call: _Attempt) -> wire.EncodedReplyBody:
        reply = self._behaviour.flip_labels(call.handler(call.chat_request), call.chat_request.key)
        if fault is not None:
            reply = self._behaviour.break_content(reply, fault, call.chat_request.key, call.attempt)
        return wire.encode_completion(call.chat_request, reply, self._count_cached(call.chat_request))

    def _count_cached(self, request: ChatRequest) -> int | None:
        """Return the prompt tokens from the cache and add the prompt to it; None where the server has no cache."""
        if self._prompts is None:
            return None
        parts = [request.model, request.schema_name or "", *(message["content"] for message in request.messages)]
        cached_tokens = self._prompts.count_cached(parts, request.prompt_tokens)
        # Added with the reply and not on arrival: of two equal prompts at the same time, a provider computes both.
        self._prompts.add(parts)
        return cached_tokens


class _Attempt:
    """One attempt of a request."""

    __slots__ = ("attempt", "chat_request", "handler", "line", "request")

    def __init__(
        self, request: web.Request, chat_request: ChatRequest, handler: Handler, line: BillLine, attempt: int
    ) -> None:
        self.request = request
        self.chat_request = chat_request
        self.handler = handler
        self.line = line
        self.attempt = attempt


def _read_attempt(request: web.Request) -> int | None:
    header = request.headers.get(ATTEMPT_HEADER)
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and 1 <= len(header) <= 9 and int(header) >= 1):
        raise BadRequest(f"{ATTEMPT_HEADER} must be a whole number from 1 on.", param=ATTEMPT_HEADER)
    return int(header)


def _error(
    status: int,
    message: str,
    *,
    kind: str = "server_error",
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    body = wire.encode_error_body(message, kind=kind, code=code, param=param)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


@asynccontextmanager
async def open_model_server(
    registry: HandlerRegistry,
    behaviour: ServerBehaviour | None = None,
    *,
    batches: BatchBehaviour | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[ModelServer]:
    """Run a server for the duration of the block; port 0 takes any free one."""
    address = require_loopback(host, "model server")
    server = ModelServer(registry, behaviour or ServerBehaviour(), batches)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=SHUTDOWN_GRACE_SECONDS)
    await runner.setup()
    try:
        server.base_url = f"{await start_listening(runner, address, port)}/v1"
        yield server
    finally:
        await runner.cleanup()


class ModelServerThread:
    """A server in a thread of its own, for tests, notebooks and synchronous code.

    ::

        with ModelServerThread(registry) as server:
            client = OpenAI(base_url=server.base_url, api_key="none")
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        behaviour: ServerBehaviour | None = None,
        *,
        batches: BatchBehaviour | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._serving = open_model_server(registry, behaviour, batches=batches, host=host, port=port)
        self._server: ModelServer | None = None

    def __enter__(self) -> ModelServerThread:
        """Start the server; errors of the address are raised here, not in the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="eclose-world-server", daemon=True)
        # The loop must run before the server starts in it.
        self._thread.start()
        try:
            self._server = asyncio.run_coroutine_threadsafe(self._serving.__aenter__(), self._loop).result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the server, its thread and its socket."""
        try:
            asyncio.run_coroutine_threadsafe(self._serving.__aexit__(None, None, None), self._loop).result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def base_url(self) -> str:
        """URL for clients, with ``/v1``."""
        return self._running.base_url

    @property
    def _running(self) -> ModelServer:
        if self._server is None:
            raise UserError("the server has not been started: use it in a with statement.")
        return self._server

    def bill(self, *, keys: bool = True) -> dict[str, Any]:
        """Return the bill, read between two requests and never during one."""

        async def read() -> dict[str, Any]:
            return self._running.bill(keys=keys)

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result()


def run_model_server(
    registry: HandlerRegistry, behaviour: ServerBehaviour | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> None:
    """Serve until SIGTERM or SIGINT. When ready, print one line with the URL to standard output."""
    asyncio.run(_run(registry, behaviour, host, port))


async def _run(registry: HandlerRegistry, behaviour: ServerBehaviour | None, host: str, port: int) -> None:
    stop = listen_for_stop_signals()
    async with open_model_server(registry, behaviour, host=host, port=port) as server:
        sys.stdout.write(f"serving {server.base_url}\n")
        sys.stdout.flush()
        await stop.wait()
