"""Management commands for submissions, teams, and quotas."""
