"""Run coroutines from synchronous functions, also inside a running event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

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
