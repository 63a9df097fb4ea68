"""Experiments: a study of backbones, methods and training seeds, from its plan to its tables."""
