"""File storage: content-addressed files, stored runs, and free space."""
