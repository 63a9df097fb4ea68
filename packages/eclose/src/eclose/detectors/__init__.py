"""Scores of reliability that need neither people nor a reference answer."""
