"""What commands of curation have in common: who acts, why, and what is acted on."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models, transaction

from evaluation.core.problems import at_lines
from leaderboard.core.audit import acting, actor
from leaderboard.models import Challenge, Dataset, Entry, Team, User

Row = TypeVar("Row", bound=models.Model)


class CurationCommand(BaseCommand):
    """A verb of curation. Inherit, say in `subjects` and `add_more` what it takes, and act in `curate`."""

    #: The rows that it acts on, by their names in `SUBJECTS`: arguments, in this order, and then given to `curate`.
    subjects: tuple[str, ...] = ()
    #: The permission that whoever acts has to have, such as `leaderboard.reveal_dataset`.
    right = ""
    #: Whether `curate` is one transaction.
    atomic = True
    #: What the verb says when it cannot be done; each is shown as the command's error.
    refusals: tuple[type[Exception], ...] = (ValueError,)
    #: Who reads the reason.
    why_help = "kept in the record, and public where readers are told"

    def add_arguments(self, parser: CommandParser) -> None:
        """The verb's own, and who and why."""
        for name in self.subjects:
            parser.add_argument(name, **SUBJECTS[name][0])
        self.add_more(parser)
        add_actor_arguments(parser, self.why_help)

    def add_more(self, parser: CommandParser) -> None:
        """The verb's own arguments."""

    def curate(self, *args: Any, **options: Any) -> str:
        """Act, and return what was done, in a sentence."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Act in the person's name."""
        try:
            with transaction.atomic() if self.atomic else nullcontext(), acting_person(options):
                if self.right:
                    require_right(self.right)
                rows = {name: SUBJECTS[name][1](options[name]) for name in self.subjects}
                message = self.curate(**{**options, **rows})
        except self.refusals as error:
            raise CommandError(str(error)) from error
        self.stdout.write(message)


def add_actor_arguments(parser: ArgumentParser, why_help: str) -> None:
    """Who acts, and why."""
    parser.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is: an account here")
    parser.add_argument("--why", required=True, help=why_help)


@contextmanager
def acting_person(options: Mapping[str, Any]) -> Iterator[None]:
    """Act as `--by` for the reason `--why`. Raises CommandError where there is no such person, or no reason."""
    person = find_person(options["by"])
    if not (why := options["why"].strip()):
        raise CommandError("Say why: --why is kept in the record.")
    with acting(person, why):
        yield


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


def find_by_slug(model: type[Row], slug: str) -> Row:
    """The row of a dataset, a system, a team, a round or a benchmark. Raises CommandError."""
    named = Team.has_address(slug) if model is Team else models.Q(slug=slug)
    row = model._default_manager.filter(named).first()
    if row is None:
        raise CommandError(f"There is no {model._meta.verbose_name} {slug}: give its slug.")
    return row


def find_dataset(slug: str) -> Dataset:
    """The dataset with this slug. Raises CommandError."""
    return find_by_slug(Dataset, slug)


def find_challenge(key: int) -> Challenge:
    """The challenge with this number. Raises CommandError."""
    challenge = Challenge.objects.select_related("system").filter(pk=key).first()
    if challenge is None:
        raise CommandError(f"There is no challenge {key}.")
    return challenge


def find_entry(reference: str) -> Entry:
    """The entry with this number, or the one of `DATASET/SYSTEM`, by slugs. Raises CommandError.

    Where a system has several results there, all are listed with their numbers.
    """
    entries = Entry.objects.select_related("dataset", "system")
    if reference.isdigit():
        entry = entries.filter(pk=int(reference)).first()
        if entry is None:
            raise CommandError(f"There is no entry {reference}.")
        return entry
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


#: What commands act on: the argument that names it, and what finds it.
SUBJECTS: dict[str, tuple[dict[str, Any], Callable[[Any], models.Model]]] = {
    "dataset": ({"help": "its slug"}, find_dataset),
    "entry": ({"help": "its number, or DATASET/SYSTEM by their slugs"}, find_entry),
    "challenge": ({"type": int, "help": "its number, as in the admin or the API (key)"}, find_challenge),
}


def problem_line(message: str, lines: Sequence[int]) -> str:
    """A problem of a file, with the lines where it is, as one of a list."""
    return f"- {message}{at_lines(lines)}"


class ProgressLine:
    """One line, written over and over on a terminal; elsewhere a line a stage."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.live = sys.stdout.isatty()
        self.stage = ""

    def show(self, stage: str, share: float) -> None:
        """Show the share of the stage that is done."""
        if self.live:
            self.out.write(f"\r\x1b[K{stage} {share:4.0%}", ending="")
        elif stage != self.stage:
            self.out.write(f"{stage} …")
        self.stage = stage

    def finish(self) -> None:
        """Leave the line."""
        if self.live:
            self.out.write("\r\x1b[K", ending="")
