"""Which responses of an input a run takes: all, those since a time, a sample; and whether beside those it has."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eclose.values.response import Response

NO_TIME = "it has no time"
_PERIOD = re.compile(r"(\d+)([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, kw_only=True)
class IntakeSettings:
    """Settings of which responses a run takes.

    Raises:
        SettingError: ``since`` is no time, or ``sample`` is no share.

    Examples:
        >>> IntakeSettings(append=True, since="24h", sample=0.02).sample
        0.02
    """

    append: bool = False
    """Whether the run takes new questions and responses beside those that it has."""
    since: str | None = None
    """Only responses given at this time or later: ISO 8601 (UTC unless it says otherwise), or a period before now,
    such as ``24h``, ``7d`` or ``30m``."""
    sample: float | None = None
    """Only this share of the responses, by a hash of the id of their trace, or of their own."""

    def __post_init__(self) -> None:
        if self.sample is not None and not 0 < self.sample <= 1:
            raise SettingError(f"--sample {self.sample:g}: is no share. Give one above 0 and up to 1: 0.02 for 2 %.")
        if self.since is not None:
            _parse_since(self.since, datetime.now(UTC))

    @property
    def chooses(self) -> bool:
        """Whether some responses may be left out."""
        return self.since is not None or self.sample is not None

    def at(self, now: datetime) -> IntakeSettings:
        """Return the settings with a time in place of a period before ``now``."""
        return self if self.since is None else replace(self, since=_format_time(_parse_since(self.since, now)))

    def require_folder(self, out: object) -> None:
        """Raise where responses are to be added and no run is named."""
        if self.append and out is None:
            raise SettingError("--append: name the folder of the run with --out.")

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the choice, for the identity of a run and for manifests."""
        named = {"since": self.since, "sample": self.sample}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def inputs(self) -> tuple[Path, ...]:
        """No files."""
        return ()

    def read_exclusions(self) -> Callable[[Response], str | None]:
        """Return a function from a response to the reason why it is left out, or None."""
        since = None if self.since is None else _parse_since(self.since, datetime.now(UTC))

        def exclude(response: Response) -> str | None:
            if self.sample is not None and locate_in_sample(response) >= self.sample:
                return f"not in the sample of {_format_share(self.sample)}"
            if since is None:
                return None
            if response.time is None:
                return NO_TIME
            return None if _parse_time(response.time) >= since else f"given before {self.since}"

        return exclude


def locate_in_sample(response: Response) -> float:
    """Return where a response stands between 0 and 1: a sample takes those below its share.

    The first six bytes of the SHA-256 of the id of its trace, or of its own id where it has none, as a binary
    fraction. So a trace is in or out everywhere, and a larger sample contains a smaller one.
    """
    name = response.id if response.span is None else response.span.trace_id
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def describe_choice(samples: tuple[float, ...], since: str | None) -> tuple[str, ...]:
    """Return a sentence where the responses of a run are a part of what was given to it; empty where they are all."""
    parts = []
    if set(samples) - {1.0}:
        parts.append(f"a sample of {', then '.join(map(_format_share, samples))} by a hash of their ids")
    if since is not None:
        parts.append(f"those since {since}")
    return (f"Not all responses were judged, but {' and '.join(parts)}: the rates describe these.",) if parts else ()


def _format_share(share: float) -> str:
    return f"{100 * share:g} %"


def _parse_since(text: str, now: datetime) -> datetime:
    try:
        if period := _PERIOD.fullmatch(text):
            return now - timedelta(**{_UNITS[period[2]]: int(period[1])})
        return _parse_time(text)
    except (ValueError, OverflowError) as error:
        raise SettingError(
            f"--since {text}: is no time. Give one such as 2026-11-20T10:00:00Z, or a period: 24h, 7d, 30m."
        ) from error


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
