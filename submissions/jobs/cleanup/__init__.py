"""Files that no row names, and rows whose files are gone."""
