"""Traces of other tools: their spans and the cases in them."""
