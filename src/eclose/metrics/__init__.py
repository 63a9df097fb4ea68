"""Metrics of the paper: rates of verdicts, agreement between annotators, and agreement of a judge with people."""
