"""Names, refusals and JSON that people type."""
