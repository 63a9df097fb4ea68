"""What Inspect finds when it looks for ``eclosure``: the entry point imports this module, and nothing else does."""

from __future__ import annotations

from eclosure.adapters.inspect.metrics import gap, judged
from eclosure.adapters.inspect.provider import recorded
from eclosure.adapters.inspect.scorer import lgg
from eclosure.adapters.inspect.tasks import hotpotqa, musique, respond, two_wiki

__all__ = ["gap", "hotpotqa", "judged", "lgg", "musique", "recorded", "respond", "two_wiki"]
