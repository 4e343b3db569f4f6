"""Bytes on disk: content-addressed files, stored runs, free space."""
