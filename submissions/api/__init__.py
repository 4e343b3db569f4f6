"""API views of submissions, uploads, notices, webhooks, and models."""
