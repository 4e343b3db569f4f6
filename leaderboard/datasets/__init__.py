"""Files, relevance judgments, and lists of datasets."""
