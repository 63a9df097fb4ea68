"""Entry point of Inspect: importing this module registers the scorer, metrics, tasks and provider of eclose."""

from __future__ import annotations

from eclose.integrations.inspect.log_only_provider import uncallable_model_provider
from eclose.integrations.inspect.metrics import gap_metric, label_rate_metric
from eclose.integrations.inspect.scorer import lgg_scorer
from eclose.integrations.inspect.tasks import hotpotqa_task, musique_task, response_solver, two_wiki_task

__all__ = [
    "gap_metric",
    "hotpotqa_task",
    "label_rate_metric",
    "lgg_scorer",
    "musique_task",
    "response_solver",
    "two_wiki_task",
    "uncallable_model_provider",
]
