"""The report of a run: its sections, examples, explorer and figures."""
