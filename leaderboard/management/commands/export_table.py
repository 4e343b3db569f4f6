"""`manage.py export_table TABLE`: export a table as the admin does."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evaluation.core.problems import format_count
from leaderboard.admin.tables import FORMATS, TABLES, table_text


class Command(BaseCommand):
    """Command that writes a table as CSV or JSON."""

    help = "Write a curation table as CSV or JSON, for editing and import_table."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("table", choices=list(TABLES))
        parser.add_argument("--format", choices=list(FORMATS), default="csv")
        parser.add_argument("--to", type=Path, metavar="FILE", help="output file (default: standard output)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the table to a file or standard output."""
        resource = TABLES[options["table"]]
        rows = resource().get_queryset().order_by("pk")
        text = table_text(resource, rows, options["format"])
        if options["to"] is None:
            self.stdout.write(text)
            return
        try:
            options["to"].write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise CommandError(f"{options['to']} cannot be written: {error.strerror}.") from error
        self.stdout.write(f"{format_count(rows.count(), 'row')} in {options['to']}.")
