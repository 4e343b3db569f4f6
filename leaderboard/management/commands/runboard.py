"""`manage.py runboard`: the whole site, in one terminal, until Ctrl-C."""

import gc
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
from leaderboard.management.supervisor.site import Site, port_from_environment


class Command(BaseCommand):
    """A door to `leaderboard.management.supervisor`."""

    help = (
        "Run the whole site: Valkey, web, worker and beat. PORT and RUNBOARD_VAR say where; Ctrl-C ends it."
    )
    requires_system_checks = []  # the site's own processes check themselves; this one should be up at once

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--stop-with-parent",
            action="store_true",
            help="also stop when the process that ran this ends (Linux)",
        )
        parser.add_argument(
            "--prepare", action="store_true", help="only make what a first start makes, then end"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if wrong := check_branding(None):
            raise CommandError("\n".join(f"{each.msg} {each.hint}" for each in wrong))
        os.umask(0o077)  # of all processes of the site: what they write is for nobody else on this machine
        if options["prepare"]:
            gc.disable()  # syntax trees of a whole library have no cycles; looking for some takes a third of the time
            bootstrap.prepare()
            return
        if options["stop_with_parent"]:
            die_with_parent(os.getppid(), signal.SIGTERM)
        for warning in check_folder(None):
            echo(f"WARNING: {warning.msg} Better: {warning.hint}")
        sys.exit(Site(settings.VAR, port_from_environment()).run())
