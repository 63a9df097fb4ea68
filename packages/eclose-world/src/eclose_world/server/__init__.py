"""A model server that plays the roles, with faults on demand."""
