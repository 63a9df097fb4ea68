"""Experiments: a grid of backbones, methods and seeds from one plan, run stage by stage."""
