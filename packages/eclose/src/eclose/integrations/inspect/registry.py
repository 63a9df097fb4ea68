"""Entry point of Inspect: importing this module registers the scorer, metrics and tasks of eclose."""

from __future__ import annotations

from eclose.integrations.inspect.scorer import gap_metric, label_rate_metric, lgg_scorer
from eclose.integrations.inspect.tasks import hotpotqa_task, musique_task, response_solver, two_wiki_task

__all__ = [
    "gap_metric",
    "hotpotqa_task",
    "label_rate_metric",
    "lgg_scorer",
    "musique_task",
    "response_solver",
    "two_wiki_task",
]
