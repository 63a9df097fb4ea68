"""Verdicts of a judged run, sent back to the trace stores that the responses came from."""
