"""Talking to chat models."""
