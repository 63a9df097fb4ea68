"""Roles that models play, answered by the oracle."""
