"""Commands of `python -m evaluation`."""
