"""The roles of the world's model: judge, constructor and verifier, and who answers which request."""
