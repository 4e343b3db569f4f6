"""`manage.py reset_second_factor EMAIL --by EMAIL --why TEXT`: help users who lost their second factor."""

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import User
from submissions.accounts.access import reset_second_factor


class Command(CurationCommand):
    help = "Remove an account's second factor and recovery codes, and end its sessions and tokens."
    why_help = "reason for the record: who asked, and how the identity was verified"
    subjects = ("account",)

    def curate(self, account: User, **options: Any) -> str:
        ended_count = reset_second_factor(account)
        return f"Removed the second factor of {account.email}. Sessions and tokens ended: {ended_count}."
