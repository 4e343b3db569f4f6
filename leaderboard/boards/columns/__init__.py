"""Columns of a dataset's board."""
