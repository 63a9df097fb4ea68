"""Rate limit for password attempts, by account and by network address: a few a minute, then doubling waits.

Counted in memory by one process, for a bounded number of accounts and addresses. Unknown names are counted like known
ones, so that a wait does not reveal which accounts exist.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING

from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class LoginAttemptLimits:
    """Number of free attempts and lengths of the waits after them, in seconds."""

    free: int = 5
    """Attempts within a window that need no wait."""
    window: float = 60.0
    longest: float = 300.0
    """Longest wait. Bounded, because an attacker who tries a name also makes its owner wait."""
    capacity: int = 10_000
    """Accounts, and addresses, that are counted. Beyond it the one with the oldest attempt is dropped."""

    def __post_init__(self) -> None:
        """Raise where the limits contradict each other."""
        if self.free < 1 or self.capacity < 1 or not 0 < self.window <= self.longest:
            raise SettingError("attempts: free and capacity must be at least 1, and window at most longest.")


@dataclass(slots=True)
class _Tally:
    times: deque[float] = field(default_factory=deque)
    """Times of the attempts within the last window."""
    strikes: int = 0
    """How often in a row the limit was reached."""
    until: float = float("-inf")
    """Time before which attempts are refused."""


class LoginAttemptCounter:
    """Counter of login attempts, safe to use from several threads."""

    def __init__(self, limits: LoginAttemptLimits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits or LoginAttemptLimits()
        self._clock = clock
        self._lock = Lock()
        self._accounts: OrderedDict[str, _Tally] = OrderedDict()
        self._addresses: OrderedDict[str, _Tally] = OrderedDict()

    def admit(self, account: str, address: str) -> int:
        """Return the seconds to wait; 0 admits the attempt and counts it before its outcome is known.

        Refused attempts are not counted, so that a wait ends even for a client that keeps trying.
        """
        with self._lock:
            now = self._clock()
            counted = [(tallies, key, tallies.get(key, _Tally())) for tallies, key in self._keys(account, address)]
            wait = max(tally.until for _, _, tally in counted) - now
            if wait > 0:
                return ceil(wait)
            for tallies, key, tally in counted:
                self._count(tally, now)
                self._store(tallies, key, tally)
            return 0

    def record_success(self, account: str, address: str) -> None:
        """Clear the count of an account after a right password; its address gets back this single attempt."""
        # An attacker with an account of their own must not reset the count of their address by logging in.
        with self._lock:
            self._accounts.pop(_account_key(account), None)
            if (tally := self._addresses.get(_address_key(address))) is not None:
                self._refund(tally, self._clock())

    def _keys(self, account: str, address: str) -> tuple[tuple[OrderedDict[str, _Tally], str], ...]:
        return (self._accounts, _account_key(account)), (self._addresses, _address_key(address))

    def _count(self, tally: _Tally, now: float) -> None:
        limits = self._limits
        # Attempts older than the window do not count.
        while tally.times and tally.times[0] <= now - limits.window:
            tally.times.popleft()
        # A quiet period as long as the longest wait clears the strikes.
        if now >= tally.until + limits.longest:
            tally.strikes = 0
        tally.times.append(now)
        # After a first strike every further attempt is delayed, not only every fifth.
        if tally.strikes or len(tally.times) >= limits.free:
            tally.until = now + self._delay(tally.strikes)
            tally.strikes += 1

    def _delay(self, strikes: int) -> float:
        """Return a window for the first strike, then twice as long for each further one."""
        # Capped exponent: 2.0 ** 1024 overflows a float, and the wait is bounded long before.
        return min(self._limits.longest, self._limits.window * 2.0 ** min(strikes, 64))

    def _refund(self, tally: _Tally, now: float) -> None:
        if tally.times:
            tally.times.pop()
        if tally.until > now:
            tally.strikes -= 1
            tally.until = now

    def _store(self, tallies: OrderedDict[str, _Tally], key: str, tally: _Tally) -> None:
        tallies[key] = tally
        # Ordered by latest attempt, so that the oldest is dropped first.
        tallies.move_to_end(key)
        if len(tallies) > self._limits.capacity:
            tallies.popitem(last=False)


def _account_key(account: str) -> str:
    # Names have at most 64 characters; a request may hold megabytes.
    return account[:65].casefold()


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
