"""A diagnosis -> one page, tables and files that people and machines read."""
