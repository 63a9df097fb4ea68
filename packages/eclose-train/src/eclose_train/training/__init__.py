"""E-Closure training, selection of checkpoints and the switch test."""
