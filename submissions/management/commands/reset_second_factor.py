"""`manage.py reset_second_factor EMAIL --reason TEXT`: for who lost telephone and recovery codes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.models import User
from submissions.people.second_factor import reset_second_factor


class Command(BaseCommand):
    """Takes a second factor away, which is recorded."""

    help = "Remove an account's second factor and recovery codes; its sessions and tokens end."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose, and why."""
        parser.add_argument("email")
        parser.add_argument(
            "--reason", required=True, help="for the record: who asked, and how they were known"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Take it away."""
        person = User.objects.filter(email__iexact=options["email"].strip()).first()
        if person is None:
            raise CommandError(f"There is no account with the address {options['email']}.")
        if not options["reason"].strip():
            raise CommandError("Say why: it is what the record has.")
        ended = reset_second_factor(person, options["reason"].strip())
        self.stdout.write(f"{person.email} has no second factor now; {ended} sessions and tokens ended.")
