"""Requests and answers: middleware, headers, errors, downloads."""
