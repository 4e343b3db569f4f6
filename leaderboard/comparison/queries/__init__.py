"""Queries of datasets with open judgements: how hard each is, and what every system finds for it."""
