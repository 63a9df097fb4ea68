"""Responses, families and sources with a known fault."""
