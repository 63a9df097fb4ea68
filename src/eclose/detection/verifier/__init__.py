"""Verifiers of dependencies, learned from counterfactual families."""
