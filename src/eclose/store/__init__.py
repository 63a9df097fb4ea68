"""Files, calls and runs: core values on disk, and the record of how they came about."""
