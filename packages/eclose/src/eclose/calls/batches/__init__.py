"""Calls through the batch interfaces of providers."""
