"""The call ledger: every model call of a run in SQLite or PostgreSQL, durable before it is sent."""
