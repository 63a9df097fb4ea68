"""Accounts, passwords and sessions of a project."""
