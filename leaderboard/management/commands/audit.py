"""`manage.py audit`: list the audit log."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from leaderboard.core.text.plain import plain_text
from leaderboard.models import AuditRecord


class Command(BaseCommand):
    """Command that lists audit records, newest first."""

    help = "List curation actions and changes of public numbers with author, time and reason."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--action", help="action, such as quarantined, published, measures, price")
        parser.add_argument("--dataset", metavar="SLUG")
        parser.add_argument("--actor", metavar="EMAIL")
        parser.add_argument("--since", metavar="YYYY-MM-DD")
        parser.add_argument("--limit", type=int, default=50, help="maximum number of records (default: 50)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write one line per record."""
        records = AuditRecord.objects.select_related("dataset")
        filters = {
            "action": options["action"],
            "dataset__slug": options["dataset"],
            "actor__email__iexact": options["actor"],
            "at__date__gte": options["since"],
        }
        records = records.filter(**{name: value for name, value in filters.items() if value})
        try:
            for row in records[: options["limit"]]:
                self.stdout.write(format_record(row))
            self.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe, as `head` does. Discard what Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def format_record(row: AuditRecord) -> str:
    """Return time, actor, action, subject, changes and reason, separated by tabs."""
    pairs = {name: (row.before.get(name), row.after.get(name)) for name in (*row.before, *row.after)}
    changes = {
        name: ["–" if value in (None, "", [], {}) else plain_text(value) for value in pair]
        for name, pair in pairs.items()
        if pair[0] != pair[1]
    }
    changes_text = "; ".join(f"{name.replace('_', ' ')}: {' → '.join(pair)}" for name, pair in changes.items())
    dataset_suffix = f" on {row.dataset.slug}" if row.dataset_id and row.dataset else ""
    parts = (
        f"{row.at:%Y-%m-%dT%H:%M:%SZ}",
        row.actor_name,
        row.action,
        f"{row.subject}{dataset_suffix}",
        changes_text,
        row.reason,
    )
    return "\t".join(" ".join(part.split()) for part in parts)
