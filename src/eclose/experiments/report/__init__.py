"""The report of an experiment: tables, figures and files of the paper's results section."""
