"""Which ids have been seen, in a few dozen bytes each: a million records must not fill a laptop's memory."""

from __future__ import annotations

import hashlib
from array import array

from eclose.core.identity import canonical_bytes

_START = 1 << 10


def hash64(data: bytes) -> int:
    """Return a 64-bit digest, never zero: zero marks an empty slot. A million ids collide with chance 3e-8."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


def _as_bytes(value: object) -> bytes:
    """Bytes as they are; anything else by its canonical spelling."""
    return value if isinstance(value, bytes) else canonical_bytes(value)


class SeenIds:
    """An open-addressing table of digests: id, content, and where the id was first seen.

    A Python set of strings takes more than 150 bytes an id; this takes 16 bytes a slot at a load of at most two
    thirds.
    """

    def __init__(self) -> None:
        self._count = 0
        self._allocate(_START)

    def __len__(self) -> int:
        """How many different ids were seen."""
        return self._count

    def add(self, id_: str, content: object, place: int) -> tuple[int, bool] | None:
        """Note an id; None when it is new, else where it was first seen and whether the content is the same.

        Content is bytes, or anything JSON can express.
        """
        key, body = hash64(id_.encode("utf-8", "surrogatepass")), hash64(_as_bytes(content)) & 0xFFFFFFFF
        slot = self._slot(key)
        if self._ids[slot]:
            return self._places[slot], self._contents[slot] == body
        self._put(slot, key, body, place)
        self._count += 1
        if self._count * 3 > len(self._ids) * 2:
            self._grow()
        return None

    def _allocate(self, size: int) -> None:
        self._ids = array("Q", [0]) * size
        self._contents = array("I", [0]) * size
        self._places = array("I", [0]) * size

    def _slot(self, key: int) -> int:
        mask = len(self._ids) - 1
        slot = key & mask
        while self._ids[slot] and self._ids[slot] != key:
            slot = (slot + 1) & mask
        return slot

    def _put(self, slot: int, key: int, body: int, place: int) -> None:
        self._ids[slot], self._contents[slot], self._places[slot] = key, body, place

    def _grow(self) -> None:
        old = zip(self._ids, self._contents, self._places, strict=True)
        self._allocate(2 * len(self._ids))
        for key, body, place in old:
            if key:
                self._put(self._slot(key), key, body, place)
