"""Publishing of families: data card, and Parquet tables for dataset hubs."""
