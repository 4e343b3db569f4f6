"""The Django project and everything the public sees: datasets, systems, results, boards."""

from leaderboard.celery import app as celery_app

__all__ = ["VERSION", "celery_app"]

#: As `pyproject.toml` has it; workers announce it.
VERSION = "0.1.0"
