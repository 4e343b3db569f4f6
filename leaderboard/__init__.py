"""The Django project and everything the public sees: datasets, systems, results, boards."""

from leaderboard.celery import app as celery_app

__all__ = ["celery_app"]
