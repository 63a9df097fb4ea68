"""Runs: resumable steps over records, their folders, manifests and provenance."""
