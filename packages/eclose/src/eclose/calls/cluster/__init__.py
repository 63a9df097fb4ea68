"""Calls from many machines, with Ray."""
