"""Run coroutines from synchronous functions, also inside a running event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator

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
