"""A provider's batch files: many requests in one file, answered within a day at a lower price."""
