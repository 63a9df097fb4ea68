"""Commands of ``eclose judge``."""
