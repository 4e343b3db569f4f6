"""Indexes and searches that several engines share."""
