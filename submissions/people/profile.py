"""How a person is shown."""

from __future__ import annotations

from django.db import transaction

from leaderboard.models import User
from submissions.people.teams import personal_team, rename_team


@transaction.atomic
def set_profile(person: User, name: str, team_name: str) -> None:
    """Store the person's name and their team's."""
    person.name = name
    person.save(update_fields=["name"])
    team = personal_team(person)
    if team.name != team_name:
        rename_team(team, team_name)
