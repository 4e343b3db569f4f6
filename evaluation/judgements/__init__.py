"""Relevance judgements: read, merged, split."""
