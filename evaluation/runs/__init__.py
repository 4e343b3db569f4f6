"""Runs: read in every form, checked, scored, pooled and compared."""
