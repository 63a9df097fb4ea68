"""A file of questions becomes instances: three benchmarks, other tools' columns, and our own."""
