"""Families for others: the data card, the licences of the sources, and tables that a hub of datasets reads."""
