"""Traces of other tools: their spans, the cases in them, and a collector that writes them to a file."""
