"""`manage.py database_rights`: what the site's roles may do to which table."""

from typing import Any

from django.core.management.base import BaseCommand

from leaderboard.core.database_grants import grant_rights


class Command(BaseCommand):
    """A door to `leaderboard.core.database_grants`."""

    help = (
        "Give the roles of docker/roles.sql their rights to all tables of PostgreSQL. For the owner of the tables, "
        "after each migration; it may be run again."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many tables each role may use."""
        given = grant_rights()
        for role, tables in given.items():
            self.stdout.write(f"{role} may use {tables} tables.")
        if not given:
            self.stdout.write("This database has none of the roles, so nothing was changed.")
