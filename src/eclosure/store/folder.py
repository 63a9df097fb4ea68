"""What lies where in a run's folder, so that one command finds what another wrote."""

from __future__ import annotations

INSTANCES = "instances.jsonl"
"""The questions with their passages."""
RESPONSES = "responses.jsonl"
JUDGMENTS = "judgments.jsonl"
SCREENING = "screening.jsonl"
"""Which questions can be used."""
VALIDATION = "validation.json"
"""How far the judge can be trusted."""
REPORT = "report"
"""A folder of its own."""
