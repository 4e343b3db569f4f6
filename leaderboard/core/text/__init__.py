"""Text formats: numbers, names, Markdown, BibTeX and LaTeX."""
