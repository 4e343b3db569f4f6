"""Bounded reading of compressed files and zips from untrusted sources."""
