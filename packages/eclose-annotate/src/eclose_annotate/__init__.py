"""The annotation protocol: a server for people, its records and results."""
