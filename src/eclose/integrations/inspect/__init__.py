"""Inspect AI: eclose judges as its scorer, its providers as judges of eclose, and logs in both directions."""
