"""Calls to models: composed of retry, cache, budget, journal and rate limit, and run over files of records."""
