"""What a model or a judge is shown and asked: every prompt, as a versioned text."""
