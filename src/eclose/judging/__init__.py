"""Judging of responses by a model under the locked guidelines, and validation of the judge."""
