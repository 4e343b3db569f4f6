"""`manage.py runboard`: run the whole site in one terminal until Ctrl-C."""

import os
import signal
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.core.checks import check_branding, check_folder
from leaderboard.importing import bootstrap
from leaderboard.management.supervisor.logs import echo
from leaderboard.management.supervisor.processes import die_with_parent
from leaderboard.management.supervisor.site import Site, database_is_outdated, port_from_environment


class Command(BaseCommand):
    """Command-line interface of `leaderboard.management.supervisor`."""

    help = "Run the whole site: Valkey, web, worker and beat. Set PORT and RUNBOARD_VAR to change port and folder."
    requires_system_checks = []  # The site's processes run the checks; this one should start immediately.

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--stop-with-parent", action="store_true", help="on Linux, stop with the parent process")
        parser.add_argument("--prepare", action="store_true", help="wait for migrations, then create the initial data")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the site until it is stopped, and exit with its status; `--prepare` only creates the initial data."""
        if problems := check_branding(None):
            raise CommandError("\n".join(f"{error.msg} {error.hint}" for error in problems))
        os.umask(0o077)  # For all processes of the site: other users of the machine cannot read their files.
        if options["prepare"]:
            bootstrap.prepare(database_is_outdated)
            return
        if options["stop_with_parent"]:
            die_with_parent(os.getppid(), signal.SIGTERM)
        for warning in check_folder(None):
            echo(f"WARNING: {warning.msg} Fix: {warning.hint}")
        sys.exit(Site(settings.VAR, port_from_environment()).run())
