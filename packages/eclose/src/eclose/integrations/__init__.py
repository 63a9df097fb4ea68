"""Guests in other tools: exports of verdicts, scorers, Inspect."""
