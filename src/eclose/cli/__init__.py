"""Parse, call, print: one file per verb."""
