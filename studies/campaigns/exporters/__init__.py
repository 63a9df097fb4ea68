"""Small agents of other packages, each run in an environment of its own by ``real_exports.py``."""
