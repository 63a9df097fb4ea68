"""Counterfactual families: edits, comparisons, files, pages, publishing."""
