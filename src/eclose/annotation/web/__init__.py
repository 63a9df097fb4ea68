"""The annotation server: pages over HTTP, made of what a pass may show."""
