"""`manage.py approve_teams CSV`: approve the listed teams for hidden datasets."""

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
    """Command that approves teams from a list."""

    help = "Approve the teams in a CSV with a column “team” (slugs) or “email” (addresses of members)."
    why_help = "reason, stored in the record"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument(
            "csv",
            type=Path,
            help="CSV with a header line; each row has the slug of a team, or the verified address of an "
            "account, which approves the user's first team and, if it is waiting, the account",
        )

    def curate(self, **options: Any) -> str:
        """Approve all teams in the list and waiting accounts, or none if a line is invalid; return a summary."""
        people, teams = _parse_list(options["csv"])
        account_count = sum(approve_account(person) for person in people)
        teams += [personal_team(person) for person in people]
        approved_count = sum(approve_team(team) for team in {team.pk: team for team in teams}.values())
        return (
            f"Teams approved: {approved_count}. Already approved: {len({team.pk for team in teams}) - approved_count}. "
            f"Accounts approved: {account_count}."
        )


def _parse_list(path: Path) -> tuple[list[User], list[Team]]:
    """Parse the CSV into users, named by verified address, and teams, named by slug.

    Raises ValueError if the file is not UTF-8, has no suitable column, or has invalid lines, all of which are named.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {"team", "email"}.intersection(reader.fieldnames or ()):
                raise ValueError(f"{path} needs a header line with a column “team” or “email”.")
            rows = [(reader.line_num, row) for row in reader]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    people: list[User] = []
    teams: list[Team] = []
    messages = []
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
            finding = f"no team {slug}" if slug else account if email else "neither team nor email"
            messages.append(f"line {line}: {finding}")
    if messages:
        raise ValueError("No team was approved. " + "; ".join(messages))
    return people, teams
