"""How a person is shown."""

from __future__ import annotations

from django.db import transaction

from leaderboard.models import User
from leaderboard.results.history.revisions import lock_boards
from leaderboard.results.publishing import boards_of_team
from submissions.accounts.teams import personal_team, rename_team


@transaction.atomic
def set_profile(person: User, name: str, team_name: str) -> None:
    """Store the person's name and their team's."""
    team = personal_team(person)
    renamed = team.name != team_name
    if renamed:
        # Boards before people: the order of everybody who takes both.
        lock_boards(boards_of_team(team.pk))
    person.name = name
    person.save(update_fields=["name"])
    if renamed:
        rename_team(team, team_name)
