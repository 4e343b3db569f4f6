"""The leaderboard's Django application."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class LeaderboardConfig(AppConfig):
    """Datasets, systems, results, boards."""

    name = "leaderboard"
    verbose_name = "Leaderboard"

    def ready(self) -> None:
        """Register the checks of the site, and let histories say why."""
        from leaderboard.core import checks
        from leaderboard.core.audit import connect_histories

        connect_histories()
        register(checks.check_folder, Tags.security)
        register(checks.check_site_pages, Tags.files)
        register(checks.check_branding, Tags.files)
        register(checks.check_mail, Tags.security, deploy=True)
        register(checks.check_durability, Tags.database)
        register(checks.check_history, Tags.database)
        # Not at every `migrate`, which is the owner's.
        register(checks.check_role, Tags.database, deploy=True)
