"""Caches: per process, on the shared server, and of whole pages."""
