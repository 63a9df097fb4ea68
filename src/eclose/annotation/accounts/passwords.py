"""Password rules and password hashes.

Hashes are argon2id with OWASP's minimum parameters; passwords are verified as typed. Any characters are allowed.
Refused are the passwords that attackers try first: common ones, the account's name, and these with a few more signs.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.errors import UserError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

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
