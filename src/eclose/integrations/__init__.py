"""Connections to tools of other projects."""
