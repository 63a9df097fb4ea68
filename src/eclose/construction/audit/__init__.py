"""Audit of families by people: a blind sample, forms, and a report with agreement and intervals (appendix B.6)."""
