"""`manage.py restore_backup`: a backup into an empty site."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.core.schema_version import mismatch
from leaderboard.management.backup import Manifest, restore_backup
from submissions.jobs.cleanup import find_missing_files


class Command(BaseCommand):
    help = "Fill an empty database and an empty RUNBOARD_VAR from a backup; compare every row count and hash."
    requires_system_checks = []  # there are no tables yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="what `manage.py backup` made: runboard-…")
        for name, words in (
            ("--identity", "file with the secret key (AGE-SECRET-KEY-1…)"),
            ("--judgements-identity", "file with that of the judgements, if it is another"),
        ):
            parser.add_argument(name, type=Path, metavar="FILE", help=words)

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["folder"]
        files, differences = restore_backup(folder, options["identity"], options["judgements_identity"])
        rows = Manifest.read(folder).rows
        self.stdout.write(
            f"{sum(rows.values()):,} rows in {len(rows)} tables, {files['store']:,} stored files."
        )
        if "private" in files:
            self.stdout.write(f"{files['private']:,} private files.")
        else:
            self.stdout.write("Judgements were left out: they need their own key (--judgements-identity).")
        other_version = mismatch()  # then the queries may name columns that are not there
        if not other_version:
            differences += find_missing_files(private="private" in files and settings.PRIVATE_STORAGE)
        if differences:
            raise CommandError("Not all came back:\n  " + "\n  ".join(differences))
        found = "and every file that a row names is there."
        if other_version:
            found = f"whether rows name files that are missing was not asked. {other_version}"
        self.stdout.write(f"All row counts and hashes are equal{';' if other_version else ','} {found}")
