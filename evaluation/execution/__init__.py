"""Retrieval in a child process: a job as JSON is the input, files and progress lines are the output."""
