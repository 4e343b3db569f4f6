"""Names, errors, and JSON that people type."""
