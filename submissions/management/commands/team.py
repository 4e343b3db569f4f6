"""`manage.py team VERB TEAM`: what curators do for teams, from a terminal."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from leaderboard.core.audit import actor
from leaderboard.management.curating import CurationCommand, find_by_slug, find_person, require_right
from leaderboard.models import Membership, Team, User
from submissions.accounts import teams
from submissions.accounts.forms import TeamNameField
from submissions.accounts.teams import TeamRefused, rename_team


class Command(CurationCommand):
    """Renames a team, and says who is in it and who decides for it."""

    help = (
        "Rename a team, add or remove a person, give a role, or hand the team over. The team keeps an owner."
    )
    refusals = (ValueError, TeamRefused)
    right = "leaderboard.change_team"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["rename", "add", "remove", "role", "transfer"])
        parser.add_argument("team", help="its slug")
        parser.add_argument("subject", help="the new name, or the person's e-mail address")
        parser.add_argument("--owner", action="store_true", help="add, role: as an owner; otherwise a member")

    def curate(self, **options: Any) -> str:
        team = find_by_slug(Team, options["team"])
        if options["verb"] == "rename":
            return self._rename(team, options["subject"])
        require_right("leaderboard.change_user")  # a team's own may read what no curator may
        return self._change(team, find_person(options["subject"]), options["verb"], options["owner"])

    def _rename(self, team: Team, name: str) -> str:
        try:
            wanted = TeamNameField().clean(name)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        before = team.name
        rename_team(team, wanted)
        return f"{before} is {team.name} now; its address stays."

    def _change(self, team: Team, person: User, verb: str, owner: bool) -> str:
        by = actor().person
        if by is None:
            raise CommandError("Somebody has to act.")
        role = "an owner" if owner else "a member"
        if verb == "add":
            teams.add_member(team, person, owner=owner, by=by)
            return f"{person.email} is {role} of {team} now."
        found = Membership.objects.filter(team=team, user=person).first()
        if found is None:
            raise CommandError(f"{person.email} does not belong to {team}.")
        if verb == "remove":
            teams.remove_member(team, found.pk, by=by, curating=True)
            return f"{person.email} is no longer in {team}."
        if verb == "role":
            teams.set_role(team, found.pk, owner=owner, by=by, curating=True)
            return f"{person.email} is {role} of {team} now."
        teams.transfer_team(team, found.pk, by=by, curating=True)
        return f"{person.email} alone owns {team} now."
