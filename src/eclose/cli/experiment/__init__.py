"""Commands of ``eclose experiment``."""
