"""Password rules and password hashes.

Hashes are argon2id with OWASP's minimum parameters; passwords are verified as typed. Any characters are allowed.
Refused are the passwords that attackers try first: common ones, the account's name, and these with a few more signs.

Wrong passwords are limited by account and network address together, and by address. A person who mistypes waits alone:
colleagues behind the same address have their own count. Attempts from another address never delay the owner of an
account, so that strangers cannot lock a person out. Counted in memory by one process; unknown names are counted like
known ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from argon2 import PasswordHasher
    from limits import RateLimitItem

Verified = TypeVar("Verified")
_LOCKS = 64
"""Number of locks that the addresses share."""

SHORTEST, LONGEST = 12, 256
"""Bounds of the length, in characters. ASVS asks for at least 8; the upper bound limits the cost of hashing."""

TIME_COST, MEMORY_KIB, LANES = 2, 19 * 1024, 1
"""Parameters of argon2id: OWASP's minimum (iterations, KiB, parallel lanes)."""

DUMMY_HASH = "$argon2id$v=19$m=19456,t=2,p=1$C3h4OfZ9HrS4F5rodccv/A$BU/4nEKKUs3+h29mMc5cHCSzvlIqaKbI5x/2S5W3nP4"
"""Hash of a discarded random password. Verified for unknown names, so that they take as long as known ones."""

# First guesses at an account of this server.
_SERVER_WORDS = frozenset({"eclose", "annotate", "annotation", "annotator", "adjudicator", "screener"})
# Keyboard rows, digits and the alphabet. Repeated, so that a run such as 890123 across the end is found too.
_ROWS = ("1234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm")
_RUNS = tuple(run for row in _ROWS for run in (row * 3, row[::-1] * 3))


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password."""
    return _hasher().hash(_bytes(password))


def password_matches(stored: str, password: str) -> bool:
    """Return whether a password has the stored hash; an unreadable hash matches no password."""
    hasher = _hasher()
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - needs an extra

    try:
        return hasher.verify(stored, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


def password_needs_rehash(stored: str) -> bool:
    """Return whether a hash was made with other parameters than the current ones."""
    return _hasher().check_needs_rehash(stored)


def password_problems(password: str, name: str, *, shortest: int = SHORTEST) -> tuple[str, ...]:
    """Return what is wrong with a new password, one sentence each; empty where it is acceptable."""
    messages = []
    if len(password) < shortest:
        messages.append(f"A password has at least {shortest} characters. Several words are easy to remember.")
    if len(password) > LONGEST:
        messages.append(f"A password has at most {LONGEST} characters.")
    # Only for acceptable lengths: searching repetitions takes quadratic time.
    elif message := _guessable(password.casefold(), name.casefold()):
        messages.append(message)
    return tuple(messages)


def _guessable(password: str, name: str) -> str | None:
    # Attackers try these forms of a common word first: with digits around it, repeated, and both at once.
    core, unit = _core(password), _unit(password)
    forms = {password, core, unit, _unit(core), _core(unit)}
    if forms & {name, _core(name)}:
        return "A password must not be the name, nor the name with a few characters around it."
    if forms & common_passwords() or forms & _SERVER_WORDS or len(unit) < 4:
        return "This password, or one much like it, is among the most common ones."
    if any(password in run for run in _RUNS):
        return "A password must not be a row of keys, letters or digits in order."
    return None


def _core(password: str) -> str:
    """Return a password without the digits and signs around it, where they are at most half of it."""
    letters = [position for position, letter in enumerate(password) if letter.isalpha()]
    core = password[letters[0] : letters[-1] + 1] if letters else ""
    return core if 2 * len(core) >= len(password) else password


def _unit(password: str) -> str:
    """Return the part that a password repeats, "abc" of "abcabcab"; the password itself where nothing repeats."""
    length = next((n for n in range(1, len(password)) if password[n:] == password[:-n]), len(password))
    return password[:length] if 2 * length <= len(password) else password


@cache
def common_passwords() -> frozenset[str]:
    """Return the most common passwords, in lower case."""
    lines = (files(__package__) / "texts" / "common_passwords.txt").read_text("ascii")
    return frozenset(lines.split())


def _bytes(password: str) -> bytes:
    # A form may hold lone surrogates, which plain UTF-8 cannot encode.
    return password.encode("utf-8", "surrogatepass")


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - needs an extra
    except ImportError as missing:
        raise UserError("accounts need argon2-cffi. Run: pip install 'eclose[annotate]'") from missing
    return PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_KIB, parallelism=LANES)


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
        # Names have at most 64 characters; a request may hold megabytes. Separators of keys must not occur in them.
        account_key = account[:65].casefold().encode("unicode_escape").hex()
        keys: list[tuple[RateLimitItem, tuple[str, ...]]] = [
            (item, ("account", account_key, address)) for item in self._account
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
