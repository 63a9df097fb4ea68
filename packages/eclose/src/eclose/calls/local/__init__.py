"""Models whose weights are loaded here."""
