"""Who acts in a command, and why: as on the pages of the admin, both are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.audit import acting
from leaderboard.models import User


def add_curator_arguments(parser: CommandParser) -> None:
    """`--by` and `--why`."""
    parser.add_argument(
        "--by", required=True, metavar="EMAIL", help="who does it: the e-mail address of an account"
    )
    parser.add_argument("--why", required=True, metavar="REASON", help="kept with the change, in a few words")


def curator_of(options: Mapping[str, Any], permission: str) -> AbstractContextManager[None]:
    """`acting` as the person named by `--by`. Raises CommandError for nobody, and without the permission."""
    person = User.objects.filter(email__iexact=options["by"], is_active=True).first()
    if person is None:
        raise CommandError(f"nobody has the e-mail address {options['by']} here")
    if not person.has_perm(permission):
        raise CommandError(f"{person} has not the permission {permission}: a superuser gives it in the admin")
    if not options["why"].strip():
        raise CommandError("say why in a few words: --why REASON")
    return acting(person, options["why"].strip())
