"""Families to an adapter: objectives as tables of comparisons, inside a Trainer that people know."""
