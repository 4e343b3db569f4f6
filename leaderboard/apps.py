"""Django application of the leaderboard."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class LeaderboardConfig(AppConfig):
    """Application of datasets, systems, results and boards."""

    name = "leaderboard"
    verbose_name = "Leaderboard"

    def ready(self) -> None:
        """Register the system checks, and connect histories to the audit log."""
        from leaderboard.core import checks
        from leaderboard.core.audit import connect_histories

        connect_histories()
        register(checks.check_folder, Tags.security)
        register(checks.check_site_pages, Tags.files)
        register(checks.check_branding, Tags.files)
        register(checks.check_mail, Tags.security, deploy=True)
        register(checks.check_durability, Tags.database)
        register(checks.check_history, Tags.database)
        # Only with --deploy, because `migrate` runs as the tables' owner.
        register(checks.check_role, Tags.database, deploy=True)
