"""Compressed files and zips that strangers packed, read within bounds."""
