"""`manage.py approve_teams CSV`: the teams of a list may submit to hidden judgements."""

import csv
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Team, User
from submissions.accounts.approval import approve_account, approve_team
from submissions.accounts.authentication import own_addresses
from submissions.accounts.teams import personal_team


class Command(CurationCommand):
    """Approves teams by list."""

    help = "Approve the teams of a CSV with a column “team” (slugs) or “email” (their people's addresses)."
    why_help = "kept in the record"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument(
            "csv",
            type=Path,
            help="with a header line; a row names a team by its slug, or a person by an address of an account here: "
            "their first team, and the account itself where it waits",
        )

    def curate(self, **options: Any) -> str:
        """Approve all, or none where a line names nobody."""
        people, teams = _read(options["csv"])
        accounts = sum(approve_account(person) for person in people)
        teams += [personal_team(person) for person in people]
        done = sum(approve_team(team) for team in {team.pk: team for team in teams}.values())
        return f"{done} teams approved, {len({team.pk for team in teams}) - done} were before; {accounts} accounts."


def _read(path: Path) -> tuple[list[User], list[Team]]:
    """Return the people and teams of a list. Raises ValueError with all wrong lines."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = {"team", "email"}.intersection(reader.fieldnames or ())
            if not columns:
                raise ValueError(f"{path} needs a header line with a column “team” or “email”.")
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    people: list[User] = []
    teams: list[Team] = []
    wrong = []
    for line, row in rows:
        slug, email = ((row.get(name) or "").strip() for name in ("team", "email"))
        team = Team.objects.filter(slug=slug).first() if slug else None
        person = User.objects.filter(email=email.lower()).first() if email and not slug else None
        if team is not None:
            teams.append(team)
        elif person is not None and email.lower() in own_addresses(person):
            people.append(person)
        else:
            account = f"no account with the verified address {email}"
            what = f"no team {slug}" if slug else account if email else "neither team nor email"
            wrong.append(f"line {line}: {what}")
    if wrong:
        raise ValueError("Nobody was approved. " + "; ".join(wrong))
    return people, teams
