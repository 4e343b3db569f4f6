"""Filters and tags of the board's pages."""
