"""Evaluation of a model while it is trained: replies to held-out inputs, matched and judged."""
