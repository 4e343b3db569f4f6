"""`manage.py api_token EMAIL [--scopes …] [--days N]`: print a new API token."""

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
    """Command that creates an API token and, on a site with embedded settings, the account."""

    help = "Print a new API token for the account with this email address."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--scopes", nargs="+", choices=Scope.values, default=Scope.values, help="scopes of the token (default: all)"
        )
        parser.add_argument(
            "--days", type=int, default=LIFETIME.days, help="lifetime in days (default and maximum: %(default)s)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Create a token for the account and print only the token on standard output.

        If the account has the maximum number of tokens, the oldest one from the command line is revoked. The creation
        is recorded.
        """
        person = self._find_or_create_account(options["email"].strip().lower())
        personal_team(person)
        values = {"scopes": options["scopes"], "days": options["days"]}
        try:
            with transaction.atomic(), acting(None, "made on the command line"):
                try:
                    token = make_token(person, NAME, **values)
                except TooManyTokens:
                    # Scripts run this repeatedly, so replace the oldest token created here, never one from the site.
                    oldest = ApiToken.objects.filter(user=person, name=NAME).order_by("created").first()
                    if oldest is None:
                        raise
                    revoke_token(person, oldest.digest)
                    self.stderr.write("Revoked the oldest token created on the command line.")
                    token = make_token(person, NAME, **values)
                record("token made", person, after=values)
        except TokenRefused as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"The token is valid for {options['days']} days. Scopes: {', '.join(options['scopes'])}.")
        self.stdout.write(token)

    def _find_or_create_account(self, email: str) -> User:
        """Return the account with this address. On a site with embedded settings, create it if it is missing.

        Raises CommandError otherwise, or if the address is invalid.
        """
        person = User.objects.filter(email__iexact=email).first()
        if person is not None:
            return person
        if not settings.EMBEDDED:
            raise CommandError(f"No account has the address {email}. Sign up on the site first.")
        try:
            validate_email(email)
        except ValidationError:
            raise CommandError(f"{email} is not an email address.") from None
        person = User.objects.create_user(email)
        self.stderr.write(f"Created the account {email}.")
        return person
