"""Baselines that are not methods of the paper: preference optimization by TRL on the same families."""
