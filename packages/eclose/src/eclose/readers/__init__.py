"""Records of benchmarks, pipelines and agents, read into cases."""
