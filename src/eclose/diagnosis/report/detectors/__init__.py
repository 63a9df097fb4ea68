"""Reports on detectors: the tables and figures of the paper, and their files."""
