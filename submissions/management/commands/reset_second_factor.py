"""`manage.py reset_second_factor EMAIL --by EMAIL --why TEXT`: for who lost telephone and recovery codes."""

from typing import Any

from leaderboard.management.curating import CurationCommand
from leaderboard.models import User
from submissions.accounts.access import reset_second_factor


class Command(CurationCommand):
    help = "Remove an account's second factor and recovery codes; its sessions and tokens end."
    why_help = "for the record: who asked, and how they were known"
    subjects = ("account",)

    def curate(self, account: User, **options: Any) -> str:
        ended = reset_second_factor(account)
        return f"{account.email} has no second factor now; {ended} sessions and tokens ended."
