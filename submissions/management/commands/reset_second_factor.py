"""`manage.py reset_second_factor EMAIL --by EMAIL --why TEXT`: for who lost telephone and recovery codes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_person
from submissions.accounts.second_factor import reset_second_factor


class Command(CurationCommand):
    """Takes a second factor away, which is recorded."""

    help = "Remove an account's second factor and recovery codes; its sessions and tokens end."
    why_help = "for the record: who asked, and how they were known"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def curate(self, **options: Any) -> str:
        person = find_person(options["email"])
        ended = reset_second_factor(person)
        return f"{person.email} has no second factor now; {ended} sessions and tokens ended."
