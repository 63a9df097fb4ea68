"""Limits of wrong passwords, by account and network address together, and by address.

Only wrong passwords count. A person who mistypes waits alone: colleagues behind the same address have their own count.
Attempts from another address never delay the owner of an account, so that strangers cannot lock a person out. Counted
in memory by one process; unknown names are counted like known ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from limits import RateLimitItem

Verified = TypeVar("Verified")
_LOCKS = 64
"""Number of locks that the addresses share."""


@dataclass(frozen=True, slots=True)
class LoginAttemptLimits:
    """Wrong passwords that are accepted before the next attempt must wait, as ``limits`` writes them."""

    account: str = "5 per minute; 20 per hour"
    """For one account from one address."""
    address: str = "100 per hour"
    """For all accounts from one address."""


class LoginDelayedError(Exception):
    """Raised where an attempt comes too early; ``seconds`` tells how long to wait."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"wait {seconds} seconds")
        self.seconds = seconds


class LoginAttemptCounter:
    """Counter of wrong passwords, safe to use from several threads.

    Within any hour, an address gets at most 20 guesses at one account and 100 at all accounts together, however many
    requests it sends at once.
    """

    def __init__(self, limits: LoginAttemptLimits | None = None) -> None:
        from limits import parse_many  # noqa: PLC0415 - only a server needs it
        from limits.storage import MemoryStorage  # noqa: PLC0415 - as above
        from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415 - as above

        chosen = limits or LoginAttemptLimits()
        self._account, self._address = parse_many(chosen.account), parse_many(chosen.address)
        self._windows = MovingWindowRateLimiter(MemoryStorage())
        self._locks = tuple(Lock() for _ in range(_LOCKS))

    def attempt(self, account: str, address: str, verify: Callable[[], Verified | None]) -> Verified | None:
        """Return the result of ``verify``, and count None as a wrong password.

        Raises:
            LoginDelayedError: The account at this address, or the address, has too many wrong passwords. ``verify``
                is not called, and the attempt does not count.
        """
        address = _address_key(address)
        keys: list[tuple[RateLimitItem, tuple[str, ...]]] = [
            (item, ("account", _account_key(account), address)) for item in self._account
        ]
        keys += [(item, ("address", address)) for item in self._address]
        # Attempts of one address follow one another: of many at once, none is verified before the last is counted.
        with self._locks[hash(address) % _LOCKS]:
            used_up = [(item, key) for item, key in keys if not self._windows.test(item, *key)]
            if used_up:
                ends = max(self._windows.get_window_stats(item, *key).reset_time for item, key in used_up)
                raise LoginDelayedError(max(1, ceil(ends - time.time())))
            verified = verify()
            if verified is None:
                for item, key in keys:
                    self._windows.hit(item, *key)
        return verified


def _account_key(account: str) -> str:
    # Names have at most 64 characters; a request may hold megabytes. Separators of keys must not occur in them.
    return account[:65].casefold().encode("unicode_escape").hex()


def _address_key(address: str) -> str:
    """Return an address, or the /64 network of an IPv6 one: a single client usually owns all of it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    # ::ffff:a.b.c.d is the IPv4 client a.b.c.d on a dual-stack socket.
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), 64), strict=False))
