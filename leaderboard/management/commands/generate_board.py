"""`manage.py generate_board`: a large board of made-up numbers, on a developer's own site only."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.importing.demo.generated_board import generate_board, remove_generated_board


class Command(BaseCommand):
    """Generates the board, or removes it. Made-up numbers have no place on a site that others see."""

    help = "Generate a benchmark of made-up results for measuring and looking (needs DEBUG=1 and the embedded site)."

    def add_arguments(self, parser: CommandParser) -> None:
        """How large, and whether to remove it."""
        parser.add_argument("--systems", type=int, default=1000)
        parser.add_argument("--datasets", type=int, default=20)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--remove", action="store_true", help="remove the generated board")

    def handle(self, *args: Any, **options: Any) -> None:
        """Generate or remove. Raises CommandError outside development."""
        if not settings.EMBEDDED or not settings.DEBUG:
            raise CommandError(
                "This fills the site with made-up results, so it runs in development only: on the embedded site "
                "(ALLOWED_HOSTS not set) and with DEBUG=1 in the environment."
            )
        if options["remove"]:
            self.stdout.write(f"{remove_generated_board()} generated datasets removed.")
            return
        if options["systems"] < 1 or options["datasets"] < 1:
            raise CommandError("At least one system and one dataset are needed.")
        try:
            made = generate_board(options["systems"], options["datasets"], options["seed"])
        except ValueError as error:
            raise CommandError(f"{error} (generate_board --remove).") from error
        self.stdout.write(
            f"{made.entries:,} results of {made.systems:,} systems on {made.datasets} datasets: "
            f"{made.benchmark.get_absolute_url()}"
        )
