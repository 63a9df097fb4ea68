"""Under which licence the sources of families are known to stand. What is not known is said to be so, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.benchmarks import hotpot, musique, two_wiki
from eclose.world.make.shapes import PROFILES, SHORT_PROFILES

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence of a dataset."""

    id: str
    """As hubs of datasets spell it."""
    told: str
    """For people."""
    language: str | None = None
    """Of the texts; None where it is not known."""

    @property
    def share_alike(self) -> bool:
        """Whether what is made of the texts must stand under the same licence."""
        return "-sa-" in self.id


LICENCES: Mapping[str, Licence] = {
    hotpot.BENCHMARK: Licence("cc-by-sa-4.0", "CC BY-SA 4.0; passages from Wikipedia", "en"),
    musique.BENCHMARK: Licence("cc-by-4.0", "CC BY 4.0; passages from Wikipedia", "en"),
    two_wiki.BENCHMARK: Licence(
        "apache-2.0",
        "Apache-2.0 by the mirror of its authors; the README of its repository names none, so confirm it before you "
        "publish; passages from Wikipedia, CC BY-SA",
        "en",
    ),
    **{
        f"world-{profile.name}": Licence("apache-2.0", "Apache-2.0; made up by eclose, from no other source", "en")
        for profile in (*PROFILES.values(), *SHORT_PROFILES.values())
    },
}
"""By the name that our readers give a benchmark."""


def find_licence(dataset: str) -> Licence:
    """What is known of a dataset's licence."""
    return LICENCES.get(dataset) or Licence(UNKNOWN, "unknown: look it up where the sources come from")
