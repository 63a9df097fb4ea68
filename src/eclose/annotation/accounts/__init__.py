"""Accounts: people and their invitations, passwords, sessions, and limits on login attempts."""
