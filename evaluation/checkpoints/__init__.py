"""Uploaded model checkpoints: validated without loading anything, then rebuilt file by file."""
