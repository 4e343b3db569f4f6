"""Validation of uploaded model checkpoints without loading them, and rebuilding file by file."""
