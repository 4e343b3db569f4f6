"""Shared infrastructure of the site: storage, HTTP, caches, logging, permissions, audit, and text."""
