"""Writing habits of the world's model, registered for forecasts of tokens and cost."""

from __future__ import annotations

from eclose.calls.forecast import ModelWritingHabits, register_writing_habits

WORLD_MODEL_NAME = "world"
"""The model in the server's list of models."""


def count_billed_words(text: str) -> int:
    """Count words, which the server bills as tokens."""
    return len(text.split())


WORLD_WRITING_HABITS = ModelWritingHabits(
    count=count_billed_words,
    a_message=0,
    schema_read=False,
    # It writes no reasons and quotes whole passages; on worlds other than the recorded one, 48 to 59 % of the steps
    # had a quote.
    texts={"answer": 2},
    quoted=1.0,
    supported=0.52,
)


def register_world_writing_habits() -> None:
    """Register the habits for every model with the name ``provider/world``."""
    register_writing_habits(WORLD_MODEL_NAME, WORLD_WRITING_HABITS)
