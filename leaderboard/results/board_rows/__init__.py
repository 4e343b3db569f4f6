"""Rows of current and past boards."""
