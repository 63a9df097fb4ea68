"""Response -> Judgment, by a model under the locked guidelines."""
