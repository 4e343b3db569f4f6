"""Commands, and what they start: the supervisor, backups."""
