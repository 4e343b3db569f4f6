"""`manage.py api_token EMAIL [--scopes …] [--days N]`: one token, alone on standard output."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email
from django.db import transaction

from leaderboard.core.audit import acting, record
from leaderboard.models import User
from submissions.accounts.access import LIFETIME, TokenRefused, TooManyTokens, make_token, revoke_token
from submissions.accounts.teams import personal_team
from submissions.models import ApiToken, Scope

NAME = "command line"


class Command(BaseCommand):
    """Makes an API token for an account and, on a site with the embedded default, the account too."""

    help = "Print a new API token for the account with this e-mail address."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--scopes", nargs="+", choices=Scope.values, default=Scope.values, help="all, if not said"
        )
        parser.add_argument(
            "--days", type=int, default=LIFETIME.days, help="%(default)s if not said, and at most"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the token alone on standard output, and record that it was made."""
        person = self._person(options["email"].strip().lower())
        personal_team(person)
        values = {"scopes": options["scopes"], "days": options["days"]}
        try:
            with transaction.atomic(), acting(None, "made on the command line"):
                try:
                    token = make_token(person, NAME, **values)
                except TooManyTokens:
                    # Scripts ask again and again: the oldest token made here gives way, never one made on the site.
                    oldest = ApiToken.objects.filter(user=person, name=NAME).order_by("created").first()
                    if oldest is None:
                        raise
                    revoke_token(person, oldest.digest)
                    self.stderr.write("Revoked the oldest token made on the command line to make room.")
                    token = make_token(person, NAME, **values)
                record("token made", person, after=values)
        except TokenRefused as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"The token works for {options['days']} days, to {', '.join(options['scopes'])}.")
        self.stdout.write(token)

    def _person(self, email: str) -> User:
        person = User.objects.filter(email__iexact=email).first()
        if person is not None:
            return person
        if not settings.EMBEDDED:
            raise CommandError(f"There is no account with the address {email}. Sign up on the site first.")
        try:
            validate_email(email)
        except ValidationError:
            raise CommandError(f"{email} is not an e-mail address.") from None
        person = User.objects.create_user(email)
        self.stderr.write(f"Made the account {email}.")
        return person
