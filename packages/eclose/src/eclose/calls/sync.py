"""Run coroutines from synchronous functions, also inside a running event loop, or in a loop that stays."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from threading import Thread
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where an event loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A running loop cannot be entered a second time, so the coroutine gets a loop of its own in a thread, with the
    # caller's context variables.
    with ThreadPoolExecutor(1, thread_name_prefix="eclose") as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()


def also_sync(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a blocking function of the same name; ``coroutine_of`` returns the coroutine, named ``a`` and the name."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_coroutine(function(*args, **kwargs))

    return run


def coroutine_of(blocking: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the coroutine behind a function that ``also_sync`` made."""
    function: FunctionType = blocking.__wrapped__  # type: ignore[attr-defined]
    name = f"a{function.__name__}"
    # A copy, so that a missing argument or a missing await is reported under the name that was called.
    renamed = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    renamed.__doc__, renamed.__annotations__ = function.__doc__, function.__annotations__
    return renamed


def iterate_async(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield the items of an asynchronous generator, whose event loop runs in a thread of its own."""

    async def take() -> list[T]:
        async for item in items:
            return [item]
        return []

    runner = asyncio.Runner()
    with ThreadPoolExecutor(1, thread_name_prefix="eclose") as pool:
        try:
            while batch := pool.submit(runner.run, take()).result():
                yield from batch
        finally:
            pool.submit(runner.run, items.aclose()).result()
            pool.submit(runner.close).result()


class LoopThread:
    """An event loop in a thread of its own, in which coroutines of any thread or other loop run."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a loop that was never closed must not keep a process alive.
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what still runs, and end the loop and its thread."""
        self.submit(self._cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
