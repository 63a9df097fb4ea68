"""Files of records: JSON Lines, JSON and CSV, read strictly and written atomically."""
