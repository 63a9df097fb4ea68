"""The report of an experiment as files: JSON, Markdown, LaTeX, CSV, figures and one HTML page."""
