"""Scores of detectors beside judged responses: names, columns, and the part of the page that shows them."""
