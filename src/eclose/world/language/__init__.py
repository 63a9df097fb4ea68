"""The language of the world: relations, names, phrases, questions, passages and steps, written and read back."""
