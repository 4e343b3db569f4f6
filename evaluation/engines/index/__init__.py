"""Indexes and search algorithms shared by several engines."""
