"""Retrieval as a child process does it: a job described as JSON goes in, files and lines of progress come out."""
