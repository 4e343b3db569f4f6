"""Demo content of a new site."""
