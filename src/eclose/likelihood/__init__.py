"""Scoring text under a causal model: families as token trees, exact and without patching a model."""
