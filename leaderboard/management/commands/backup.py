"""`manage.py backup`: everything that cannot be made anew, into a folder."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.management.backup import Manifest, make_backup


class Command(BaseCommand):
    help = "Write the database, the stored files and the judgements, apart and encrypted, into a new folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "destination", type=Path, help="a folder; the backup is a folder of its own in it"
        )
        for name, words in (
            ("--recipient", "public key of who may read the backup; may repeat"),
            (
                "--judgements-recipient",
                "of who may read the judgements in it; the same as --recipient unless named",
            ),
        ):
            parser.add_argument(name, action="append", default=[], metavar="age1…", help=words)
        parser.add_argument(
            "--in-the-clear", action="store_true",
            help="encrypt nothing: the folder is then as secret as the site's",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["recipient"] and not options["in_the_clear"]:
            raise CommandError(
                "Name a public key with --recipient (age-keygen makes a pair; keep the secret one elsewhere), or say "
                "--in-the-clear."
            )
        folder = make_backup(options["destination"], options["recipient"], options["judgements_recipient"])
        manifest = Manifest.read(folder)
        size = sum(int(file["bytes"]) for file in manifest.files.values())
        self.stdout.write(
            f"{folder}: {sum(manifest.rows.values()):,} rows in {len(manifest.rows)} tables, "
            f"{len(manifest.files)} files, {size:,} bytes."
        )
