"""The leaderboard's Django application."""

from django.apps import AppConfig


class LeaderboardConfig(AppConfig):
    """Datasets, systems, results, boards."""

    name = "leaderboard"
    verbose_name = "Leaderboard"
