"""HTTP servers on this machine: they listen on loopback addresses alone, since they have no authentication."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from eclose.errors import SettingError

if TYPE_CHECKING:
    from aiohttp import web


def require_loopback(host: str, server: str) -> str:
    """Return the address to listen at.

    Args:
        host: Address, or ``localhost``.
        server: What would be reachable without authentication, for the error.

    Raises:
        SettingError: The address is not a loopback address.
    """
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    if host == "localhost":
        return "127.0.0.1"
    raise SettingError(
        f"host = {host!r}: the {server} has no authentication. Use a loopback address such as 127.0.0.1."
    )


async def start_listening(runner: web.AppRunner, address: str, port: int) -> str:
    """Listen for requests; port 0 takes any free one. Return the URL.

    Raises:
        SettingError: The address cannot be used.
    """
    from aiohttp import web  # noqa: PLC0415 - of an extra

    try:
        await web.TCPSite(runner, address, port, backlog=1024).start()
    except (OSError, OverflowError) as error:
        raise SettingError(f"cannot listen at {address} port {port}: {error}. Use port 0 for any free one.") from error
    name, bound_port = runner.addresses[0][:2]
    return f"http://[{name}]:{bound_port}" if ":" in name else f"http://{name}:{bound_port}"


def listen_for_stop_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Where loops take no signals (Windows), Ctrl+C still raises KeyboardInterrupt.
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
