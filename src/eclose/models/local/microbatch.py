"""Requests to a model in this process, collected into batches behind the interface of a server.

A batch runs in a thread, so the event loop keeps writing to the ledger and handling signals meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from eclose.models.local.chat_template import PromptTooLongError
from eclose.models.openai.failures import CallFailure, CallFailureKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from eclose.models.interface import LocalBatchModel, Reply, Request

BATCH_LINGER_SECONDS = 0.05
"""Seconds without a new request after which a batch starts. One ledger commit releases many requests at once."""


class _PendingRequest(NamedTuple):
    request: Request
    reply: asyncio.Future[Reply]


class MicrobatchModel:
    """A ``ChatModel`` that answers concurrent requests in batches; see :func:`open_microbatch`."""

    def __init__(self, model: LocalBatchModel, name: str, batch_size: int) -> None:
        self._model = model
        self._name = name
        self._batch_size = batch_size
        self._queue: list[_PendingRequest] = []
        self._arrived = asyncio.Event()

    @property
    def name(self) -> str:
        """Name of the model in records and call keys."""
        return self._name

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
        """Wait while requests keep arriving and the batch has room."""
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
                problem = str(error).partition(": ")[2]  # without the position in the batch
                _fail(batch[error.index], CallFailure(CallFailureKind.TOO_LONG, problem, unpaid=True))
                batch = [pending for index, pending in enumerate(batch) if index != error.index]
            # Every caller gets the error: an exception that ended this task would leave all of them waiting for ever.
            except Exception as error:
                for pending in batch:
                    _fail(pending, error)
                return
            else:
                for pending, reply in zip(batch, replies, strict=True):
                    if not pending.reply.done():
                        pending.reply.set_result(reply)
                return


def _fail(pending: _PendingRequest, error: Exception) -> None:
    if not pending.reply.done():
        pending.reply.set_exception(error)


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
