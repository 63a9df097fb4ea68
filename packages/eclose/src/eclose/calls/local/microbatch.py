"""Requests to a model in this process behind the interface of a server: in batches, or fed to an engine one by one.

Both run in a thread, so the event loop keeps writing to the ledger and handling signals meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.local.chat_template import PromptTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from eclose.calls.local.vllm_model import VllmModel
    from eclose.calls.model import LocalBatchModel, Reply, Request

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_LINGER_SECONDS = 0.05
"""Seconds without a new request after which a batch starts. One ledger commit releases many requests at once."""


class BatchQueue(Generic[Item, Result]):
    """Items of concurrent tasks, worked on together in a thread.

    ``work`` returns a result or an error for each item, in order. An error that it raises is given to every task of
    the batch.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        size: int = sys.maxsize,
        linger_seconds: float = BATCH_LINGER_SECONDS,
    ) -> None:
        self._work = work
        self._size = size
        """Largest number of items in a batch."""
        self._linger_seconds = linger_seconds
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._working: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Return the result of an item once the batch with it is finished."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work_off())
        return await future

    async def _work_off(self) -> None:
        while self._waiting:
            length = 0
            while length < len(self._waiting) < self._size:
                length = len(self._waiting)
                await asyncio.sleep(self._linger_seconds)
            head, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            # An item whose task was cancelled meanwhile is dropped.
            batch = [(item, future) for item, future in head if not future.done()]
            results: Sequence[Result | Exception]
            try:
                results = await asyncio.to_thread(self._work, [item for item, _ in batch]) if batch else []
            # Every task gets the error: one that ended this task would leave all of them waiting for ever.
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                _resolve(future, result)
        # No await since the queue was found empty, so no item arrived in between.
        self._working = None


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if future.done():  # its task may have been cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class MicrobatchModel:
    """A ``ChatModel`` that answers concurrent requests in batches of at most ``batch_size``."""

    def __init__(self, model: LocalBatchModel, *, name: str | None = None, batch_size: int = 64) -> None:
        self.name = name or model.name
        """Name of the model in records and call keys."""
        self._model = model
        self._queue: BatchQueue[Request, Reply] = BatchQueue(self._answer, size=batch_size)

    async def complete(self, request: Request) -> Reply:
        """Queue the request and return its reply once the batch with it is finished."""
        return await self._queue.submit(request)

    def _answer(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """Answer a batch; a prompt that is too long fails alone, and the others are answered without it."""
        too_long: dict[int, Exception] = {}
        while True:
            numbers = [number for number in range(len(requests)) if number not in too_long]
            try:
                replies = dict(
                    zip(numbers, self._model.complete_all([requests[number] for number in numbers]), strict=True)
                )
            except PromptTooLongError as error:
                too_long[numbers[error.index]] = _describe_too_long(error)
            else:
                return [too_long.get(number) or replies[number] for number in range(len(requests))]


def _describe_too_long(error: PromptTooLongError) -> CallFailure:
    problem = str(error).partition(": ")[2]  # without the position in the batch
    return CallFailure(CallFailureKind.TOO_LONG, problem, unpaid=True)


class ContinuousModel:
    """A ``ChatModel`` over an engine that runs in a thread; see :func:`open_continuous`."""

    def __init__(self, engine: VllmModel, name: str) -> None:
        self._engine = engine
        self.name = name
        """Name of the model in records and call keys."""
        self._arrived: SimpleQueue[tuple[Request, asyncio.Future[Reply]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def complete(self, request: Request) -> Reply:
        """Give the request to the engine and return its reply."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._arrived.put((request, reply))
        return await reply

    def close(self) -> None:
        """End the thread after its present step."""
        self._arrived.put(None)

    def answer_requests(self) -> None:
        """Feed requests as they arrive and step the engine until closed; for a thread."""
        running: dict[int, asyncio.Future[Reply]] = {}
        number = 0
        while True:
            # Wait only where there is nothing to compute.
            while not running or not self._arrived.empty():
                if (arrived := self._arrived.get()) is None:
                    return
                request, reply = arrived
                number += 1
                try:
                    self._engine.feed(number, request)
                except Exception as error:
                    failure = _describe_too_long(error) if isinstance(error, PromptTooLongError) else error
                    self._loop.call_soon_threadsafe(_resolve, reply, failure)
                else:
                    running[number] = reply
            results: Sequence[tuple[int, Reply | Exception]]
            try:
                results = self._engine.step()
            except Exception as error:
                # Every caller gets the error: an exception that ended this thread would leave all of them waiting.
                results = [(key, error) for key in running]
            for key, result in results:
                self._loop.call_soon_threadsafe(_resolve, running.pop(key), result)


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
