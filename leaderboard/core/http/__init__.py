"""Requests and responses: middleware, headers, errors, downloads."""
