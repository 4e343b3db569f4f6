"""Retrieval, and checking and scoring of runs.

The package does not depend on the web site. `python -m evaluation` computes the site's numbers offline.
"""
