"""What commands of curation have in common: who acts, why, and what is acted on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models, transaction

from leaderboard.core.audit import acting, actor
from leaderboard.models import Dataset, Entry, System, User

Row = TypeVar("Row", bound=models.Model)


class CurationCommand(BaseCommand):
    """A verb of curation. Inherit, add arguments in `add_more`, and act in `curate`, which is one transaction."""

    #: What the verb says when it cannot be done; each is shown as the command's error.
    refusals: tuple[type[Exception], ...] = (ValueError,)
    #: Who reads the reason.
    why_help = "kept in the record, and public where readers are told"

    def add_arguments(self, parser: CommandParser) -> None:
        """The verb's own, and who and why."""
        self.add_more(parser)
        parser.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is: an account here")
        parser.add_argument("--why", required=True, help=self.why_help)

    def add_more(self, parser: CommandParser) -> None:
        """The verb's own arguments."""

    def curate(self, **options: Any) -> str:
        """Act, and return what was done, in a sentence."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Act in the person's name."""
        person = find_person(options["by"])
        why = options["why"].strip()
        if not why:
            raise CommandError("Say why: --why is kept in the record.")
        try:
            with transaction.atomic(), acting(person, why):
                done = self.curate(**options)
        except self.refusals as error:
            raise CommandError(str(error)) from error
        self.stdout.write(done)


def find_person(email: str) -> User:
    """The account with this address. Raises CommandError."""
    person = User.objects.filter(email__iexact=email.strip()).first()
    if person is None:
        raise CommandError(f"There is no account with the address {email}.")
    return person


def require_right(right: str) -> None:
    """Raises CommandError where the person who acts lacks a permission, such as `leaderboard.reveal_dataset`."""
    person = actor().person
    if person is None or not person.has_perm(right):
        raise CommandError(
            f"{actor().name} has not the permission {right}: a superuser gives it in the admin."
        )


def find_dataset(slug: str) -> Dataset:
    """The dataset with this slug. Raises CommandError."""
    return _find(lambda: Dataset.objects.get(slug=slug), f"There is no dataset {slug}: give its slug.")


def find_system(slug: str) -> System:
    """The system with this slug. Raises CommandError."""
    return _find(lambda: System.objects.get(slug=slug), f"There is no system {slug}: give its slug.")


def find_entry(reference: str) -> Entry:
    """The entry with this number, or the one of `DATASET/SYSTEM`, by slugs. Raises CommandError.

    Where a system has several results there, all are listed with their numbers.
    """
    entries = Entry.objects.select_related("dataset", "system")
    if reference.isdigit():
        return _find(lambda: entries.get(pk=int(reference)), f"There is no entry {reference}.")
    dataset, slash, system = reference.partition("/")
    if not slash:
        raise CommandError(
            f"“{reference}” names no entry: give its number, or DATASET/SYSTEM by their slugs."
        )
    found = list(entries.filter(dataset__slug=dataset, system__slug=system).order_by("pk"))
    if not found:
        raise CommandError(f"{system} has no result on {dataset}.")
    if len(found) > 1:
        lines = [
            f"{each.pk}: {each.get_visibility_display()} {each.configuration} {each.published_at:%Y-%m-%d}"
            for each in found
        ]
        raise CommandError("\n".join([f"{reference} has several results; give the number of one:", *lines]))
    return found[0]


def _find(get: Callable[[], Row], otherwise: str) -> Row:
    try:
        return get()
    except models.ObjectDoesNotExist:
        raise CommandError(otherwise) from None
