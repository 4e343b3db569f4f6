"""Queries of datasets with open judgments: their difficulty, and the top documents of each system."""
