"""Files of records, tables and runs: read strictly, written whole."""
