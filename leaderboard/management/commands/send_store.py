"""`manage.py send_store`: the store goes to the bucket that several hosts have."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from leaderboard.core.storage import shared


class Command(BaseCommand):
    help = "Send what the store has to the bucket of STORE_STORAGE: once, when a site begins to use one."

    def handle(self, **options: Any) -> None:
        if not shared.is_shared():
            raise CommandError("STORE_STORAGE names no bucket.")
        self.stdout.write(f"{shared.send_all()} files and folders are there.")
