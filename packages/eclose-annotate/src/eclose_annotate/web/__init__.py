"""The annotation server and its pages."""
