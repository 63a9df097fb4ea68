"""Detectors: cheap scores that tell which responses to look at, without a frontier judge."""
