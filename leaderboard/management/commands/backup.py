"""`manage.py backup`: write everything that cannot be rebuilt to a folder."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.management.backup import Manifest, make_backup


class Command(BaseCommand):
    help = "Write the database, the stored files and the judgments to a new folder, encrypted separately."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=Path, help="folder in which a new folder is created for the backup")
        for name, words in (
            ("--recipient", "public key that can decrypt the backup; repeatable"),
            (
                "--judgements-recipient",
                "public key that can decrypt the judgments; default: --recipient; repeatable",
            ),
        ):
            parser.add_argument(name, action="append", default=[], metavar="age1…", help=words)
        parser.add_argument(
            "--in-the-clear", action="store_true",
            help="do not encrypt: protect the folder like the site's own",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        """Write a backup and print its size. Raises CommandError without a recipient or `--in-the-clear`."""
        if not options["recipient"] and not options["in_the_clear"]:
            raise CommandError(
                "Give a public key with --recipient (age-keygen creates a pair; keep the secret key elsewhere), or "
                "--in-the-clear."
            )
        folder = make_backup(options["destination"], options["recipient"], options["judgements_recipient"])
        manifest = Manifest.read(folder)
        size = sum(int(file["bytes"]) for file in manifest.files.values())
        self.stdout.write(
            f"{folder}: {sum(manifest.rows.values()):,} rows in {len(manifest.rows)} tables, "
            f"{len(manifest.files)} files, {size:,} bytes."
        )
