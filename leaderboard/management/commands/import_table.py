"""`manage.py import_table TABLE FILE`: import an edited table as the admin does."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluation.core.problems import at_lines, format_count
from leaderboard.admin.tables import TABLES, read_table, store_table, try_table
from leaderboard.management.curating import CurationCommand, change_lines, read_text


class Command(CurationCommand):
    """Command that imports a whole table, or nothing if there are problems."""

    help = "Update a curation table from CSV or JSON with columns of an export; other columns stay unchanged."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("table", choices=list(TABLES))
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="show the changes without storing them")

    def curate(self, **options: Any) -> str:
        """Import the table, unless this is a dry run, and return a line for each changed row and a summary.

        Raises CommandError if the file is unreadable or has problems.
        """
        resource = TABLES[options["table"]]
        table = read_table(read_text(options["file"]))
        if table is None:
            raise CommandError("The file is neither CSV nor JSON. Start from the output of export_table.")
        rows, problems = try_table(resource, table)
        if problems:
            lines = [f"- {problem['message']}{at_lines(problem['lines'])}" for problem in problems]
            raise CommandError("\n".join(["The table was not changed:", *lines]))
        lines = change_lines(rows)
        if options["dry_run"]:
            return "\n".join([*lines, f"{format_count(len(rows), 'row')} would change."])
        return "\n".join([*lines, store_table(resource, table)])
