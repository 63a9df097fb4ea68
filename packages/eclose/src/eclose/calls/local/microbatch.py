"""Requests to a model in this process behind the interface of a server: in batches, or fed to an engine one by one.

Both run in a thread, so the event loop keeps writing to the ledger and handling signals meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.local.chat_template import PromptTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from eclose.calls.local.vllm_model import VllmModel
    from eclose.calls.model import LocalBatchModel, Reply, Request

BATCH_LINGER_SECONDS = 0.05
"""Seconds without a new request after which a batch starts. One ledger commit releases many requests at once."""


class _PendingRequest(NamedTuple):
    request: Request
    reply: asyncio.Future[Reply]


class MicrobatchModel:
    """A ``ChatModel`` that answers concurrent requests in batches; see :func:`open_microbatch`."""

    def __init__(self, model: LocalBatchModel, name: str, batch_size: int) -> None:
        self._model = model
        self.name = name
        """Name of the model in records and call keys."""
        self._batch_size = batch_size
        self._queue: list[_PendingRequest] = []
        self._arrived = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """Queue the request and return its reply once the batch with it is finished."""
        pending = _PendingRequest(request, asyncio.get_running_loop().create_future())
        self._queue.append(pending)
        self._arrived.set()
        return await pending.reply

    async def answer_batches(self) -> None:
        """Answer batch after batch until cancelled."""
        while True:
            await self._arrived.wait()
            await self._linger()
            # No await before the event is cleared: a request that arrived in between would wait for the next one.
            batch, self._queue = self._queue[: self._batch_size], self._queue[self._batch_size :]
            if not self._queue:
                self._arrived.clear()
            # A request whose caller was cancelled meanwhile is dropped.
            await self._answer([pending for pending in batch if not pending.reply.done()])

    async def _linger(self) -> None:
        size = 0
        while size < len(self._queue) < self._batch_size:
            size = len(self._queue)
            await asyncio.sleep(BATCH_LINGER_SECONDS)

    async def _answer(self, batch: Sequence[_PendingRequest]) -> None:
        """Answer a batch; a prompt that is too long fails alone, and the others are answered without it."""
        while batch:
            try:
                replies = await asyncio.to_thread(self._model.complete_all, [pending.request for pending in batch])
            except PromptTooLongError as error:
                _fail(batch[error.index], _describe_too_long(error))
                batch = [pending for index, pending in enumerate(batch) if index != error.index]
            # Every caller gets the error: an exception that ended this task would leave all of them waiting for ever.
            except Exception as error:
                for pending in batch:
                    _fail(pending, error)
                return
            else:
                for pending, reply in zip(batch, replies, strict=True):
                    _answer(pending, reply)
                return


def _fail(pending: _PendingRequest, error: Exception) -> None:
    if not pending.reply.done():
        pending.reply.set_exception(error)


def _describe_too_long(error: PromptTooLongError) -> CallFailure:
    problem = str(error).partition(": ")[2]  # without the position in the batch
    return CallFailure(CallFailureKind.TOO_LONG, problem, unpaid=True)


class ContinuousModel:
    """A ``ChatModel`` over an engine that runs in a thread; see :func:`open_continuous`."""

    def __init__(self, engine: VllmModel, name: str) -> None:
        self._engine = engine
        self.name = name
        """Name of the model in records and call keys."""
        self._arrived: SimpleQueue[_PendingRequest | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def complete(self, request: Request) -> Reply:
        """Give the request to the engine and return its reply."""
        pending = _PendingRequest(request, self._loop.create_future())
        self._arrived.put(pending)
        return await pending.reply

    def close(self) -> None:
        """End the thread after its present step."""
        self._arrived.put(None)

    def answer_requests(self) -> None:
        """Feed requests as they arrive and step the engine until closed; for a thread."""
        running: dict[int, _PendingRequest] = {}
        number = 0
        while True:
            # Wait only where there is nothing to compute.
            while not running or not self._arrived.empty():
                if (pending := self._arrived.get()) is None:
                    return
                number += 1
                try:
                    self._engine.feed(number, pending.request)
                except Exception as error:
                    self._fail(pending, _describe_too_long(error) if isinstance(error, PromptTooLongError) else error)
                else:
                    running[number] = pending
            try:
                finished = self._engine.step()
            except Exception as error:
                # Every caller gets the error: an exception that ended this thread would leave all of them waiting.
                for pending in running.values():
                    self._fail(pending, error)
                running.clear()
            else:
                for key, reply in finished:
                    self._loop.call_soon_threadsafe(_answer, running.pop(key), reply)

    def _fail(self, pending: _PendingRequest, error: Exception) -> None:
        self._loop.call_soon_threadsafe(_fail, pending, error)


def _answer(pending: _PendingRequest, reply: Reply) -> None:
    if not pending.reply.done():  # its caller may have been cancelled
        pending.reply.set_result(reply)


@asynccontextmanager
async def open_continuous(engine: VllmModel, *, name: str | None = None) -> AsyncIterator[ContinuousModel]:
    """Open a ``ChatModel`` over an engine that batches continuously: a request joins those under way."""
    model = ContinuousModel(engine, name or engine.name)
    thread = threading.Thread(target=model.answer_requests, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.close()
        await asyncio.to_thread(thread.join)


@asynccontextmanager
async def open_microbatch(
    model: LocalBatchModel, *, name: str | None = None, batch_size: int = 64
) -> AsyncIterator[MicrobatchModel]:
    """Open a ``ChatModel`` over a batch model, with at most ``batch_size`` requests in a batch."""
    microbatch = MicrobatchModel(model, name or model.name, batch_size)
    answering = asyncio.create_task(microbatch.answer_batches())
    try:
        yield microbatch
    finally:
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
