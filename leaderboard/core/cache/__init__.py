"""Caches: in this process, in the shared server, and whole pages."""
