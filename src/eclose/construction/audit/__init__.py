"""People look at a sample of families: drawn, shown blind, and reported with agreement and intervals."""
