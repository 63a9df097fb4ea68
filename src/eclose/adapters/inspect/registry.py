"""What Inspect finds when it looks for ``eclose``: the entry point imports this module, and nothing else does."""

from __future__ import annotations

from eclose.adapters.inspect.metrics import gap, judged
from eclose.adapters.inspect.provider import recorded
from eclose.adapters.inspect.scorer import lgg
from eclose.adapters.inspect.tasks import hotpotqa, musique, respond, two_wiki

__all__ = ["gap", "hotpotqa", "judged", "lgg", "musique", "recorded", "respond", "two_wiki"]
