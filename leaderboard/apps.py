"""The leaderboard's Django application."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class LeaderboardConfig(AppConfig):
    """Datasets, systems, results, boards."""

    name = "leaderboard"
    verbose_name = "Leaderboard"

    def ready(self) -> None:
        """Register the checks of the site, and let histories say why."""
        from leaderboard.core.audit import connect_histories
        from leaderboard.core.checks import check_durability, check_folder, check_mail, check_role

        connect_histories()
        register(check_folder, Tags.security)
        register(check_mail, Tags.security, deploy=True)
        register(check_durability, Tags.database)
        # Not at every `migrate`, which is the owner's.
        register(check_role, Tags.database, deploy=True)
