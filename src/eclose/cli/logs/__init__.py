"""Commands that connect a run with the logs and trace stores of other tools."""
