"""Diagnose, compare and gate judged runs, and write reports of them."""
