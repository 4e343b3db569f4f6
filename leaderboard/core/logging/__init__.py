"""What is written to the log, and what is left out of it."""
