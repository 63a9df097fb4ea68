"""Other people's tools: what we look like to them, and what they look like to us."""
