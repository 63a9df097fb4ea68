"""Exact judgments, decided from the text."""
