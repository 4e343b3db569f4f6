"""`manage.py import_table TABLE FILE`: a table brought back, as in the admin."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluation.core.problems import at_lines, number_of
from leaderboard.admin.tables import TABLES, read_table, store_table, try_table
from leaderboard.management.curating import CurationCommand


class Command(CurationCommand):
    """Brings a table in: all of it, or nothing and everything that is wrong."""

    help = "Change what a table of curation says: CSV or JSON with the columns of an export; others stay as they are."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("table", choices=list(TABLES))
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="say what would change; store nothing")

    def curate(self, **options: Any) -> str:
        resource = TABLES[options["table"]]
        try:
            table = read_table(options["file"].read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']} cannot be read as UTF-8 text: {error}.") from error
        if table is None:
            raise CommandError("This is neither CSV nor JSON. Begin with export_table.")
        rows, problems = try_table(resource, table)
        if problems:
            lines = [f"- {each['message']}{at_lines(each['lines'])}" for each in problems]
            raise CommandError("\n".join(["Nothing was changed:", *lines]))
        lines = [
            f"{row['name']}: "
            + "; ".join(f"{each['field']}: {each['old']} → {each['new']}" for each in row["changes"])
            for row in rows
        ]
        if options["dry_run"]:
            return "\n".join([*lines, f"{number_of(len(rows), 'row')} would change."])
        return "\n".join([*lines, store_table(resource, table)])
