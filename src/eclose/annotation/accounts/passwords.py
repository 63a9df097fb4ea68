"""Passwords: which are refused, and how they are kept.

Kept as argon2id with the least that OWASP asks for, verified exactly as typed. Any characters will do; what is refused
is what others try first: common passwords, the person's own name, and these with a little around them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.errors import UserError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 256
"""In characters. ASVS asks for at least 8; nobody types more than 256, and hashing has to end."""

TIME_COST, MEMORY_KIB, LANES = 2, 19 * 1024, 1

NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$C3h4OfZ9HrS4F5rodccv/A$BU/4nEKKUs3+h29mMc5cHCSzvlIqaKbI5x/2S5W3nP4"
"""The hash of a random password that was thrown away. Who asks for an unknown name waits as long as for a known one."""

# What anybody would try here before anything else.
_OF_THIS_PLACE = frozenset({"eclose", "annotate", "annotation", "annotator", "adjudicator", "screener"})
# Rows of keys and what everybody can count. Once more from the start, so that 890123 is found too.
_ROWS = ("1234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm")
_RUNS = tuple(run for row in _ROWS for run in (row * 3, row[::-1] * 3))


def hashed(password: str) -> str:
    """The password as it is kept."""
    return _hasher().hash(_bytes(password))


def matches(stored: str, password: str) -> bool:
    """Whether a password is the one that is kept. A hash that cannot be read matches nothing."""
    hasher = _hasher()
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - needs an extra

    try:
        return hasher.verify(stored, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


def needs_rehash(stored: str) -> bool:
    """Whether a hash was made with other settings than today's."""
    return _hasher().check_needs_rehash(stored)


def problems(password: str, name: str, *, shortest: int = SHORTEST) -> tuple[str, ...]:
    """What is wrong with a new password, each a sentence; nothing when it will do."""
    found = []
    if len(password) < shortest:
        found.append(f"A password has at least {shortest} characters. Several words are easy to remember.")
    if len(password) > LONGEST:
        found.append(f"A password has at most {LONGEST} characters.")
    # Only what may be long enough is looked at: finding what repeats in a very long one takes a while.
    elif reason := _guessed_first(password.casefold(), name.casefold()):
        found.append(reason)
    return tuple(found)


def _guessed_first(password: str, name: str) -> str | None:
    core, unit = _core(password), _unit(password)
    forms = {password, core, unit, _unit(core), _core(unit)}
    if forms & {name, _core(name)}:
        return "A password is not the name, nor the name with a little around it."
    if forms & common_passwords() or forms & _OF_THIS_PLACE or len(unit) < 4:
        return "This password, or one much like it, is among the first that others try."
    if any(password in run for run in _RUNS):
        return "A password is not a row of keys, letters or digits in order."
    return None


def _core(password: str) -> str:
    """A password without the digits and signs around it, where they are at most half of it."""
    letters = [place for place, letter in enumerate(password) if letter.isalpha()]
    core = password[letters[0] : letters[-1] + 1] if letters else ""
    return core if 2 * len(core) >= len(password) else password


def _unit(password: str) -> str:
    """What a password repeats: "abc" of "abcabcab"; the whole where it repeats nothing."""
    length = next((n for n in range(1, len(password)) if password[n:] == password[:-n]), len(password))
    return password[:length] if 2 * length <= len(password) else password


@cache
def common_passwords() -> frozenset[str]:
    """What people choose most often, in small letters."""
    listed = (files(__package__) / "texts" / "common_passwords.txt").read_text("ascii")
    return frozenset(listed.split())


def _bytes(password: str) -> bytes:
    # Every string a form may hold has such a form, halves of characters included.
    return password.encode("utf-8", "surrogatepass")


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - needs an extra
    except ImportError as missing:
        raise UserError("accounts need argon2-cffi. Run: pip install 'eclose[annotate]'") from missing
    return PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_KIB, parallelism=LANES)
