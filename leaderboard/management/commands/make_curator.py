"""`manage.py make_curator EMAIL`: grant the permissions of curators, except reading hidden judgments."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.core.permissions import make_curator
from leaderboard.management.curating import CurationCommand
from leaderboard.models import User


class Command(CurationCommand):
    help = "Add an account to the curators. Reading hidden judgments is a separate permission: --read-qrels."
    subjects = ("account",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--read-qrels",
            action="store_true",
            help="also allow reading hidden judgments; each access is logged",
        )

    def curate(self, account: User, read_qrels: bool, **options: Any) -> str:
        make_curator(account, read_qrels=read_qrels)
        note = " and may read hidden judgments" if read_qrels else ""
        return f"{account} ({account.email}) is now a curator{note}."
