"""How often a password may be tried: a few times a minute for an account and for an address, then ever more slowly.

Kept in memory, by one process, for a bounded number of accounts and addresses. Names nobody has are counted like the
others, so that waiting does not tell which exist.
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
class Limits:
    """How many attempts are free, and what follows. Times in seconds."""

    free: int = 5
    """Attempts in a window."""
    window: float = 60.0
    longest: float = 300.0
    """No wait is longer: who tries in another's name should not keep them out for a day."""
    most_kept: int = 10_000
    """Accounts, and addresses, that are remembered. Beyond it the one tried longest ago is forgotten."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.free < 1 or self.most_kept < 1 or not 0 < self.window <= self.longest:
            raise SettingError("attempts: free and most_kept are at least 1, and window is at most longest.")


@dataclass(slots=True)
class _Tally:
    times: deque[float] = field(default_factory=deque)
    """Of the attempts in the last window."""
    strikes: int = 0
    """How often the limit was reached."""
    until: float = float("-inf")
    """Nothing may be tried before."""


class Attempts:
    """Counts attempts to log in. Safe to use from several threads."""

    def __init__(self, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits or Limits()
        self._clock = clock
        self._lock = Lock()
        self._accounts: OrderedDict[str, _Tally] = OrderedDict()
        self._addresses: OrderedDict[str, _Tally] = OrderedDict()

    def take(self, account: str, address: str) -> int:
        """Seconds to wait; 0 when it may be tried now, which is then counted, before anybody knows how it ends.

        What has to wait is not counted, so that waiting comes to an end also for those who keep asking.
        """
        with self._lock:
            now = self._clock()
            found = [(tallies, key, tallies.get(key, _Tally())) for tallies, key in self._kept_for(account, address)]
            wait = max(tally.until for _, _, tally in found) - now
            if wait > 0:
                return ceil(wait)
            for tallies, key, tally in found:
                self._count(tally, now)
                self._keep(tallies, key, tally)
            return 0

    def succeeded(self, account: str, address: str) -> None:
        """The password was right: the account starts anew. The address gets back this one attempt and no more."""
        with self._lock:
            self._accounts.pop(_account_key(account), None)
            if (tally := self._addresses.get(_address_key(address))) is not None:
                self._give_back(tally, self._clock())

    def _kept_for(self, account: str, address: str) -> tuple[tuple[OrderedDict[str, _Tally], str], ...]:
        return (self._accounts, _account_key(account)), (self._addresses, _address_key(address))

    def _count(self, tally: _Tally, now: float) -> None:
        limits = self._limits
        while tally.times and tally.times[0] <= now - limits.window:
            tally.times.popleft()
        if now >= tally.until + limits.longest:
            tally.strikes = 0
        tally.times.append(now)
        if tally.strikes or len(tally.times) >= limits.free:
            tally.until = now + self._delay(tally.strikes)
            tally.strikes += 1

    def _delay(self, strikes: int) -> float:
        """A window the first time, then twice as long each time."""
        # Counting stops to matter long before the power gets too large for a float.
        return min(self._limits.longest, self._limits.window * 2.0 ** min(strikes, 64))

    def _give_back(self, tally: _Tally, now: float) -> None:
        if tally.times:
            tally.times.pop()
        if tally.until > now:
            tally.strikes -= 1
            tally.until = now

    def _keep(self, tallies: OrderedDict[str, _Tally], key: str, tally: _Tally) -> None:
        tallies[key] = tally
        tallies.move_to_end(key)
        if len(tallies) > self._limits.most_kept:
            tallies.popitem(last=False)


def _account_key(account: str) -> str:
    # No name is longer, and a request could be.
    return account[:65].casefold()


def _address_key(address: str) -> str:
    """An address; of IPv6 its first half, since whoever has one has all that begin like it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), 64), strict=False))
