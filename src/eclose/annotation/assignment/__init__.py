"""Assignment of responses to annotators, balanced over groups."""
