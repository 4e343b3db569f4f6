"""Numbers, Markdown, CSV, BibTeX and LaTeX as text."""
