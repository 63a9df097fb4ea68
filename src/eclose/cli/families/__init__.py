"""Commands of ``eclose families``."""
