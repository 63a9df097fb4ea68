"""The bill of the scripted model: every request counted once, by its key.

Paid are replies that the model answered with status 200 and began to send, as in reality: broken replies, replies cut
off on the way, and replies to a client that has left. Free are rejected, failed, dropped and hanging requests, and a
proxy's page.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eclose_world.server.faults import ServerFault


@dataclass(slots=True)
class BillLine:
    """Counts of one request."""

    received: int = 0
    paid: int = 0
    busy: int = 0
    """Rejected because too many requests were under way."""
    early: int = 0
    """Received again before the Retry-After of the last 429 was over."""
    errors: int = 0
    """The handler raised an error or returned a reply that cannot be sent."""
    faulted: Counter[ServerFault] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were read from the prompt cache."""
    not_before: float = 0.0
    """Time on the server's clock at which the client may retry."""

    @property
    def attempts(self) -> int:
        """Number of times the model was reached; requests rejected as busy do not count."""
        return self.received - self.busy

    def receive(self, now: float) -> None:
        """Count an arrival."""
        self.received += 1
        # Counted, not refused: a test shows by it whether a client obeys Retry-After.
        self.early += now < self.not_before

    def pay(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Charge for one reply."""
        self.paid += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.cached_tokens += cached_tokens

    def as_json(self) -> dict[str, Any]:
        """Return the counts of this line."""
        return {name: getattr(self, name) for name in _COUNTS} | {"faulted": _plain(self.faulted)}


_COUNTS = ("received", "paid", "busy", "early", "errors", "prompt_tokens", "completion_tokens", "cached_tokens")


@dataclass(slots=True)
class ServerBill:
    """All requests since the server started or its bill was reset."""

    lines: dict[str, BillLine] = field(default_factory=dict)
    rejected: int = 0
    """Requests that could not be parsed, and so have no key (status 400)."""
    peak_in_flight: int = 0

    def get_line(self, key: str) -> BillLine:
        """Return the line of a request, a new one for a new key."""
        if (line := self.lines.get(key)) is None:
            line = self.lines[key] = BillLine()
        return line

    def as_json(self, *, keys: bool = True) -> dict[str, Any]:
        """Return totals, and with ``keys`` every line. Totals are sums of the lines."""
        bill: dict[str, Any] = {"totals": self._totals()}
        if keys:
            bill["requests"] = {key: line.as_json() for key, line in self.lines.items()}
        return bill

    def _totals(self) -> dict[str, Any]:
        lines = self.lines.values()
        faulted: Counter[ServerFault] = Counter()
        for line in lines:
            faulted.update(line.faulted)
        totals = {name: sum(getattr(line, name) for line in lines) for name in _COUNTS}
        # Rejected requests have no line of their own.
        totals["received"] += self.rejected
        return totals | {
            "faulted": _plain(faulted),
            "rejected": self.rejected,
            "distinct": len(self.lines),
            "peak_in_flight": self.peak_in_flight,
        }


def _plain(counts: Counter[ServerFault]) -> dict[str, int]:
    return {str(fault): count for fault, count in sorted(counts.items())}
