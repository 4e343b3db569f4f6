"""The board of a benchmark: systems over several datasets."""
