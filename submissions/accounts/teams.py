"""Teams, to which results belong, and how their people are shown."""

from __future__ import annotations

from itertools import chain, count

from django.db import transaction

from leaderboard.boards.facets import ANONYMOUS, THIS_SITE
from leaderboard.core import audit
from leaderboard.core.text.slugs import name_slug
from leaderboard.models import Membership, Team, TeamRedirect, User
from leaderboard.results.board_rows.revisions import lock_boards
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
    return Team.objects.create(slug=free_team_slug(name), name=name)


def free_team_slug(name: str, team: Team | None = None) -> str:
    """An address for a team of this name that no other team has or had; its own or an earlier one where it fits."""
    base = name_slug(name)[:60] or "team"
    teams, redirects = (
        Team.objects.filter(slug__startswith=base),
        TeamRedirect.objects.filter(slug__startswith=base),
    )
    if team is not None:
        teams, redirects = teams.exclude(pk=team.pk), redirects.exclude(team=team)
    taken = {*TAKEN, *teams.values_list("slug", flat=True), *redirects.values_list("slug", flat=True)}
    numbered = (f"{base}-{number}" for number in count(2))
    return next(slug for slug in chain([base], numbered) if slug not in taken)


def keep_address(team: Team, earlier: str) -> None:
    """Let an earlier slug of the team lead to the one that it has now."""
    TeamRedirect.objects.filter(slug=team.slug).delete()
    if team.slug != earlier:
        TeamRedirect.objects.get_or_create(slug=earlier, defaults={"team": team})


@transaction.atomic
def rename_team(team: Team, name: str) -> None:
    """Show the team under another name and address, on its boards too; the earlier address leads there."""
    lock_boards(boards_of_team(team.pk))
    before, earlier = team.name, team.slug
    team.name, team.slug = name, free_team_slug(name, team)
    team.save(update_fields=["name", "slug"])
    keep_address(team, earlier)
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
