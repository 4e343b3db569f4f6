"""Test collections: documents, queries, document ids, and their profiles."""
