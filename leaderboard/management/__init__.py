"""Management commands, the supervisor, and backups."""
