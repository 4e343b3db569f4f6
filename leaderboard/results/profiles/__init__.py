"""Statistics of collections and runs: their storage and their public views."""
