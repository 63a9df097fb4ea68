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
    from aiohttp.typedefs import Handler


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


def list_own_hosts(address: str, port: int) -> frozenset[str]:
    """Return the values of the Host header that name a server at an address of this machine.

    A server answers to no other: by DNS rebinding, the page of another site reaches it under a name of its own.
    """
    hosts = {"127.0.0.1", "localhost", f"[{address}]" if ":" in address else address}
    # Browsers leave the port 80 out.
    return frozenset(hosts if port == 80 else {f"{host}:{port}" for host in hosts})


def refuse_other_hosts(app: web.Application) -> None:
    """Let an application answer only requests for a host name of this machine."""
    from aiohttp import web  # noqa: PLC0415 - of an extra

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        listening = request.get_extra_info("sockname")
        if listening is not None and request.host.lower() not in list_own_hosts(*listening[:2]):
            raise web.HTTPMisdirectedRequest(text="This server does not answer to that host name.")
        return await handler(request)

    app.middlewares.append(check)


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
