"""Publishing of families: data card, licences of the sources, and Parquet tables for dataset hubs."""
