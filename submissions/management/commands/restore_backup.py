"""`manage.py restore_backup`: a backup into an empty site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.core.schema_version import mismatch
from leaderboard.management.backup.archives import BackupProblem
from leaderboard.management.backup.restoring import restore_backup
from submissions.jobs.cleanup import find_missing_files


class Command(BaseCommand):
    """A door to `leaderboard.management.backup`; then every file is looked for that a row names."""

    help = "Fill an empty database and an empty RUNBOARD_VAR from a backup; compare every row count and hash."
    requires_system_checks = []  # there are no tables yet

    def add_arguments(self, parser: CommandParser) -> None:
        """Which, and the keys."""
        parser.add_argument("folder", type=Path, help="what `manage.py backup` made: runboard-…")
        parser.add_argument(
            "--identity", type=Path, metavar="FILE", help="file with the secret key (AGE-SECRET-KEY-1…)"
        )
        parser.add_argument(
            "--judgements-identity",
            type=Path,
            metavar="FILE",
            help="file with that of the judgements, if it is another",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore it, and say what came back."""
        try:
            restored = restore_backup(options["folder"], options["identity"], options["judgements_identity"])
        except BackupProblem as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(
            f"{restored.rows:,} rows in {restored.tables} tables, {restored.files:,} stored files."
        )
        if restored.private_files is None:
            self.stdout.write("Judgements were left out: they need their own key (--judgements-identity).")
        else:
            self.stdout.write(f"{restored.private_files:,} private files.")
        differences = list(restored.differences)
        other_version = mismatch()  # then our questions may name columns that are not there
        if not other_version:
            private = restored.private_files is not None and settings.PRIVATE_STORAGE
            differences += find_missing_files(private=private)
        if differences:
            raise CommandError("Not all came back:\n  " + "\n  ".join(differences))
        said = "All row counts and hashes are equal"
        if other_version:
            self.stdout.write(
                f"{said}; whether rows name files that are missing was not asked. {other_version}"
            )
        else:
            self.stdout.write(f"{said}, and every file that a row names is there.")
