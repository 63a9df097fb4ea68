"""Questions, passages, responses and families of the world."""
