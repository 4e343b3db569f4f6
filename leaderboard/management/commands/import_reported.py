"""`manage.py import_reported FILE --publication TITLE`: publish results of a publication from a CSV."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Q

from evaluation.core.problems import format_count
from leaderboard.admin.reported import CsvForm, FigureForm
from leaderboard.importing.reported.loader import enter_figures, preview_figures
from leaderboard.management.curating import CurationCommand, change_lines, describe_errors, read_text
from leaderboard.models import Source


class Command(CurationCommand):
    """Command that publishes all rows of a CSV as the admin does, or none if there are problems."""

    help = f"Publish results of a publication from a CSV with the columns {', '.join(FigureForm.base_fields)}."
    right = "leaderboard.add_source"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--publication", help="title or key of an existing publication")
        for name in CsvForm.Meta.fields:
            parser.add_argument(f"--{name}", default="", help="of a new publication")
        parser.add_argument("--dry-run", action="store_true", help="show the changes without storing them")

    def curate(self, **options: Any) -> str:
        """Publish the rows, unless this is a dry run, and return a line for each changed result and a summary.

        Raises CommandError for an unreadable file or an invalid publication, and InvalidContent for problems of rows.
        """
        title, source = options["publication"], None
        if title and (source := Source.objects.filter(Q(key=title) | Q(title__iexact=title)).first()) is None:
            raise CommandError(
                f"There is no publication {title}. Describe a new one with --title, --authors and --year."
            )
        form = CsvForm({**options, "publication": source and source.pk, "table": read_text(options["file"])})
        if not form.is_valid():
            raise CommandError(describe_errors(form, {}))
        figures, publication = form.results().figures, source or form.instance
        rows, warnings = preview_figures(publication, figures)
        lines = [*change_lines(rows), *(f"Warning: {warning}" for warning in warnings)]
        summary = f"{format_count(len(figures), 'reported figure')} of {publication}."
        if options["dry_run"]:
            return "\n".join([*lines, f"Not stored: {summary}"])
        enter_figures(publication, figures)
        return "\n".join([*lines, f"Published: {summary}"])
