"""Models behind HTTP: endpoints, dialects, replies and failures."""
