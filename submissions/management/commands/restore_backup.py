"""`manage.py restore_backup`: restore a backup into an empty site."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.core.schema_version import describe_mismatch
from leaderboard.management.backup import Manifest, restore_backup
from submissions.jobs.cleanup import find_missing_files


class Command(BaseCommand):
    help = "Restore a backup into an empty database and an empty RUNBOARD_VAR; verify all row counts and hashes."
    requires_system_checks = []  # the tables do not exist yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="folder written by `manage.py backup`: runboard-…")
        for name, words in (
            ("--identity", "file with the secret key (AGE-SECRET-KEY-1…)"),
            ("--judgements-identity", "file with the secret key of the judgments, if different"),
        ):
            parser.add_argument(name, type=Path, metavar="FILE", help=words)

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore the backup in the folder, compare it with its manifest, and check that all referenced files exist.

        Raises CommandError with all differences.
        """
        folder = options["folder"]
        files, differences = restore_backup(folder, options["identity"], options["judgements_identity"])
        rows = Manifest.read(folder).rows
        self.stdout.write(f"{sum(rows.values()):,} rows in {len(rows)} tables, {files['store']:,} stored files.")
        if "private" in files:
            self.stdout.write(f"{files['private']:,} private files.")
        else:
            self.stdout.write("Judgments were not restored: they need a separate key (--judgements-identity).")
        other_version = describe_mismatch()  # queries may refer to columns that do not exist in another version
        if not other_version:
            differences += find_missing_files(private="private" in files and settings.PRIVATE_STORAGE)
        if differences:
            raise CommandError("The restore is incomplete:\n  " + "\n  ".join(differences))
        file_note = "and all referenced files exist."
        if other_version:
            file_note = f"but references to files were not checked. {other_version}"
        self.stdout.write(f"All row counts and hashes match{';' if other_version else ','} {file_note}")
