"""`manage.py team VERB TEAM SUBJECT`: manage teams."""

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
    """Command that renames a team or changes its members."""

    help = "Rename a team, add or remove a member, change a role, or transfer the team. A team keeps an owner."
    refusals = (ValueError, TeamRefused)
    right = "leaderboard.change_team"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["rename", "add", "remove", "role", "transfer"])
        parser.add_argument("team", help="slug of the team")
        parser.add_argument("subject", help="new name, or email address of the user")
        parser.add_argument(
            "--owner",
            action="store_true",
            help="with add or role: make the user an owner instead of a member",
        )

    def curate(self, **options: Any) -> str:
        """Rename the team, or change its members if the curator may change accounts; return a sentence about it."""
        team = find_by_slug(Team, options["team"])
        if options["verb"] == "rename":
            return self._rename(team, options["subject"])
        require_right("leaderboard.change_user")  # members can read what curators cannot
        return self._change_member(team, find_person(options["subject"]), options["verb"], options["owner"])

    def _rename(self, team: Team, name: str) -> str:
        """Rename the team and return a sentence about it. Raises CommandError if the name is invalid."""
        try:
            new_name = TeamNameField().clean(name)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        earlier_name = team.name
        rename_team(team, new_name)
        return f"Renamed {earlier_name} to {team.name}. The earlier URL redirects."

    def _change_member(self, team: Team, person: User, verb: str, owner: bool) -> str:
        """Add or remove the user, change their role, or transfer the team to them, according to `verb`.

        Return a sentence about the change. Raises CommandError if the user is not a member.
        """
        curator = actor().person
        if curator is None:
            raise CommandError("Name the acting user with --by.")
        role = "an owner" if owner else "a member"
        if verb == "add":
            teams.add_member(team, person, owner=owner, actor=curator)
            return f"{person.email} is now {role} of {team}."
        membership = Membership.objects.filter(team=team, user=person).first()
        if membership is None:
            raise CommandError(f"{person.email} is not a member of {team}.")
        if verb == "remove":
            teams.remove_member(team, membership.pk, actor=curator, curating=True)
            return f"{person.email} is no longer a member of {team}."
        if verb == "role":
            teams.set_role(team, membership.pk, owner=owner, actor=curator, curating=True)
            return f"{person.email} is now {role} of {team}."
        teams.transfer_team(team, membership.pk, actor=curator, curating=True)
        return f"{person.email} is now the only owner of {team}."
