"""Domain values and deterministic rules; they use the standard library only."""
