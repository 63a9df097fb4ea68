"""Entry point of Inspect: importing this module registers the scorer, metrics, tasks and provider of eclose."""

from __future__ import annotations

from eclose.integrations.inspect.metrics import gap, judged
from eclose.integrations.inspect.recorded_provider import recorded
from eclose.integrations.inspect.scorer import lgg
from eclose.integrations.inspect.tasks import hotpotqa, musique, respond, two_wiki

__all__ = ["gap", "hotpotqa", "judged", "lgg", "musique", "recorded", "respond", "two_wiki"]
