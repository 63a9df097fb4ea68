"""The report of a study of detectors."""
