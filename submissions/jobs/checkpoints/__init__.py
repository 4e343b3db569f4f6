"""Retrieval by workers: models in the sandbox, encoding in shards, and the site's own engines."""
