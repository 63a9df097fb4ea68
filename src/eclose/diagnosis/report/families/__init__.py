"""Counterfactual families shown to people: views, findings and a page."""
