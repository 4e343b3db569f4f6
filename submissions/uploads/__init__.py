"""Resumable uploads in chunks: the tus protocol, version 1.0, on files and database rows."""
