"""Files of records, resumable runs, and the ledger of model calls."""
