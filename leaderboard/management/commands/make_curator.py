"""`manage.py make_curator EMAIL`: the rights of curation, without those to read hidden judgements."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.core.permissions import make_curator
from leaderboard.management.curating import CurationCommand, find_person


class Command(CurationCommand):
    """Makes a person a curator."""

    help = "Put an account into the group of curators. Reading hidden judgements is a right of its own: --read-qrels."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="an account that is there")
        parser.add_argument(
            "--read-qrels", action="store_true", help="may read hidden judgements; each is logged"
        )

    def curate(self, **options: Any) -> str:
        person = find_person(options["email"])
        make_curator(person, read_qrels=options["read_qrels"])
        also = " and may read hidden judgements" if options["read_qrels"] else ""
        return f"{person} ({person.email}) is a curator now{also}."
