"""Readers of benchmarks and of other tools' files, which become instances and responses."""
