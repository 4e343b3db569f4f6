"""`manage.py make_curator EMAIL`: the rights of curation, without those to read hidden judgements."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.core.permissions import make_curator
from leaderboard.management.curating import CurationCommand
from leaderboard.models import User


class Command(CurationCommand):
    help = "Put an account into the group of curators. Reading hidden judgements is a right of its own: --read-qrels."
    subjects = ("account",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--read-qrels", action="store_true", help="may read hidden judgements; each is logged"
        )

    def curate(self, account: User, read_qrels: bool, **options: Any) -> str:
        make_curator(account, read_qrels=read_qrels)
        also = " and may read hidden judgements" if read_qrels else ""
        return f"{account} ({account.email}) is a curator now{also}."
