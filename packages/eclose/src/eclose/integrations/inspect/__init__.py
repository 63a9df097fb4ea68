"""Models, logs, scorers and tasks of Inspect."""
