"""A model in this process behind the interface of a server: what is asked at about the same time is answered in one go.

A batch that is under way is not waited for by the event loop, so books are kept and signals heard all the while.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from eclose.models.local.chat_template import PromptTooLongError
from eclose.models.openai.failures import CallFailure, FailureKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from eclose.models.interface import BatchModel, Reply, Request

LINGER = 0.05
"""Seconds without a further request after which a batch is begun: a commit of the ledger lets many go at once."""


class _PendingRequest(NamedTuple):
    request: Request
    reply: asyncio.Future[Reply]


class MicrobatchModel:
    """A ``ChatModel``; made by :func:`gathered`."""

    def __init__(self, model: BatchModel, name: str, most: int) -> None:
        self._model = model
        self._name = name
        self._most = most
        self._waiting: list[_PendingRequest] = []
        self._came = asyncio.Event()

    @property
    def name(self) -> str:
        """What records say of who answered."""
        return self._name

    async def complete(self, request: Request) -> Reply:
        """The reply, with the batch it is part of."""
        asked = _PendingRequest(request, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._came.set()
        return await asked.reply

    async def answer(self) -> None:
        """Answer batch after batch, until cancelled."""
        while True:
            await self._came.wait()
            await self._linger()
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            if not self._waiting:
                self._came.clear()
            # Whoever was cancelled meanwhile is not answered.
            await self._answer([asked for asked in batch if not asked.reply.done()])

    async def _linger(self) -> None:
        """Wait as long as requests keep coming and there is room for them."""
        seen = 0
        while seen < len(self._waiting) < self._most:
            seen = len(self._waiting)
            await asyncio.sleep(LINGER)

    async def _answer(self, batch: Sequence[_PendingRequest]) -> None:
        """A prompt that is too long is its own failure; all others are answered."""
        while batch:
            try:
                replies = await asyncio.to_thread(self._model.complete_all, [asked.request for asked in batch])
            except PromptTooLongError as error:
                told = str(error).partition(": ")[2]
                _fail(batch[error.place], CallFailure(FailureKind.TOO_LONG, told, unpaid=True))
                batch = [asked for place, asked in enumerate(batch) if place != error.place]
            except Exception as error:
                for asked in batch:
                    _fail(asked, error)
                return
            else:
                for asked, reply in zip(batch, replies, strict=True):
                    if not asked.reply.done():
                        asked.reply.set_result(reply)
                return


def _fail(asked: _PendingRequest, error: Exception) -> None:
    if not asked.reply.done():
        asked.reply.set_exception(error)


@asynccontextmanager
async def open_microbatch(
    model: BatchModel, *, name: str | None = None, most: int = 64
) -> AsyncIterator[MicrobatchModel]:
    """The model as one that is asked request by request, at most so many of which make a batch."""
    door = MicrobatchModel(model, name or model.name, most)
    answering = asyncio.create_task(door.answer())
    try:
        yield door
    finally:
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
