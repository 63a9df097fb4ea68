"""The record of what was asked, answered and paid, in SQLite or PostgreSQL."""
