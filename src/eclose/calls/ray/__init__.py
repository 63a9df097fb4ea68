"""Runs spread over the machines of a Ray cluster."""
