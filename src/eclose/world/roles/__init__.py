"""The roles of the world's model (judge, constructor, verifier) and the registry of its request handlers."""
