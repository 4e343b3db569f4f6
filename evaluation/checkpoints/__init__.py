"""Validation of uploaded model checkpoints without loading them, and rebuilding of their files."""
