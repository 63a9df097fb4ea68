"""OpenAI-compatible servers: requests, replies and failures."""
