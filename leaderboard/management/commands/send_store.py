"""`manage.py send_store`: upload the store to the bucket that several hosts share."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from leaderboard.core.storage import shared


class Command(BaseCommand):
    help = "Upload the store to the bucket of STORE_STORAGE. Run it once, when a site starts to use a bucket."

    def handle(self, **options: Any) -> None:
        if not shared.is_shared():
            raise CommandError("STORE_STORAGE is not set. Set it to the address of a bucket.")
        self.stdout.write(f"{shared.send_all()} files and folders are in the bucket.")
