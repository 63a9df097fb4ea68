"""The verbs as functions: judge, generate, detect, diagnose, compare, gate."""
