"""Submission intake: turns files and forms into queued jobs, or refuses them without storing anything."""
