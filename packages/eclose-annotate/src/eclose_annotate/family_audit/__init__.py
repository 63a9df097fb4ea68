"""The audit of families by people."""
