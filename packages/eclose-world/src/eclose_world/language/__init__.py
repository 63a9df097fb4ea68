"""The sentences of the world, and their reading."""
