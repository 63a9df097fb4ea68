"""A benchmark whose truth is known: facts, text, questions, an exact judge, and a model that answers from it."""
