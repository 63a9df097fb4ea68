"""Labelling of a run by one person, without accounts: the sample, the session, corrections."""
