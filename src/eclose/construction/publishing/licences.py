"""Licences of the datasets that families are built from. A licence that is not listed is reported as unknown."""

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
    """Licence of a dataset."""

    id: str
    """Identifier on dataset hubs."""
    description: str
    language: str | None = None
    """Language of the texts, if known."""

    @property
    def share_alike(self) -> bool:
        """Whether derived texts must carry the same licence."""
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
"""Licences by benchmark name."""


def find_licence(dataset: str) -> Licence:
    """Return the licence of a dataset, or an unknown one."""
    return LICENCES.get(dataset) or Licence(UNKNOWN, "unknown: look it up where the sources come from")
