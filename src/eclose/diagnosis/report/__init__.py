"""Reports of a diagnosis: HTML, Markdown, JSON, JUnit XML, LaTeX and figures."""
