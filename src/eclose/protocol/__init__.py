"""Prompts and guidelines as versioned texts, and the material that models and people are shown with them."""
