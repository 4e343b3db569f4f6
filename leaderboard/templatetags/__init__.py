"""Template filters and tags."""
