"""Servers for campaigns and tests."""
