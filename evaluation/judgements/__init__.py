"""Relevance judgments: reading, merging, and splitting."""
