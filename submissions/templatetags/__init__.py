"""Filters for the submitter's pages."""
