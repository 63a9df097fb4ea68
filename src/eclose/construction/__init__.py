"""Construction of counterfactual families from questions with passages, each part verified."""
