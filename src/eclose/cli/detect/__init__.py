"""Commands of ``eclose detect``."""
