"""Models in this process: Transformers, vLLM, and a small server for tests and trials."""
