"""Commands of ``eclose annotate``."""
