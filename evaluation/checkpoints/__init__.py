"""Model checkpoints that strangers send: validated without loading anything, then rebuilt file by file."""
