"""Labelling by one person, without accounts."""
