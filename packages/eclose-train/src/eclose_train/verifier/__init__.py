"""Verifiers of dependencies: detectors learned from families."""
