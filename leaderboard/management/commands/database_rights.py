"""`manage.py database_rights`: grant the site's database roles their privileges."""

from typing import Any

from django.core.management.base import BaseCommand

from leaderboard.core.database_grants import grant_rights


class Command(BaseCommand):
    """Command-line interface of `leaderboard.core.database_grants`."""

    help = (
        "Grant the PostgreSQL roles of docker/roles.sql their privileges. Run it as the owner of the tables after "
        "each migration; running it again is safe."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Grant the privileges and report the number of tables per role."""
        table_counts = grant_rights()
        for role, tables in table_counts.items():
            self.stdout.write(f"Number of tables that {role} may use: {tables}.")
        if not table_counts:
            self.stdout.write("This database has none of the roles, so nothing was changed.")
