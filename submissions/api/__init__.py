"""The API calls that write, and those that follow what was written."""
