"""Studies over backbones, methods and seeds, from one plan."""
