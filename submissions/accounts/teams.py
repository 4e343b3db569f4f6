"""Teams, to which results belong, and how their people are shown."""

from __future__ import annotations

from django.db import transaction
from django.utils.text import slugify

from leaderboard.boards.facets import ANONYMOUS, THIS_SITE
from leaderboard.core import audit
from leaderboard.models import Membership, Team, User
from leaderboard.results.history.revisions import lock_boards
from leaderboard.results.publishing.descriptions import boards_of_team, team_changed
from submissions.core.names import is_site_name


@transaction.atomic
def personal_team(user: User) -> Team:
    """The team that the person submits for: their first one, made with a neutral name where there is none.

    The name never comes from the e-mail address, which stays private.
    """
    team = Team.objects.filter(memberships__user=user).order_by("memberships__pk").first()
    if team is not None:
        return team
    neutral = not user.name or is_site_name(user.name)
    team = make_team(automatic_name(user) if neutral else user.name)
    Membership.objects.create(team=team, user=user, owner=True)
    return team


def automatic_name(user: User) -> str:
    """The neutral name of the team of a person who has not said any."""
    return f"Team {user.pk}"


#: What boards' filters by team call systems that are no team's, or whose team is kept back.
TAKEN = (THIS_SITE, ANONYMOUS)


def make_team(name: str) -> Team:
    """A new team with a free slug."""
    base = slugify(name)[:60] or "team"
    slug, number = base, 1
    while slug in TAKEN or Team.objects.filter(slug=slug).exists():
        number += 1
        slug = f"{base}-{number}"
    return Team.objects.create(slug=slug, name=name)


@transaction.atomic
def rename_team(team: Team, name: str) -> None:
    """Show the team under another name, on its boards too; its address stays."""
    lock_boards(boards_of_team(team.pk))
    before = team.name
    team.name = name
    team.save(update_fields=["name"])
    team_changed(team)
    audit.record("team renamed", team, before={"name": before}, after={"name": name})


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
