"""The annotation server: pages over HTTP that show each pass no more than it may show."""
