"""`manage.py flags list|clear|confirm`: submissions that look like probes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from leaderboard.core.audit import acting
from leaderboard.management.curating import find_dataset, find_person
from submissions.models import Flag
from submissions.quotas.flags import figures_of, settle_flag

_STATES = {"clear": Flag.State.CLEARED, "confirm": Flag.State.CONFIRMED}


class Command(BaseCommand):
    """Lists and settles flags."""

    help = "Which submissions look like probes, and what a curator made of it."

    def add_arguments(self, parser: CommandParser) -> None:
        """One of three verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="open ones, the newest first")
        listed.add_argument("--dataset", help="slug")
        listed.add_argument("--all", action="store_true", help="settled ones too")
        for verb, help_text in (("clear", "it is honest work"), ("confirm", "it is a probe")):
            settled = verbs.add_parser(verb, help=help_text)
            settled.add_argument("flag", type=int, help="its number in the list")
            settled.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is")
            settled.add_argument("--why", required=True, help="the note, kept in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        if options["verb"] == "list":
            self._list(options)
            return
        flag = Flag.objects.filter(pk=options["flag"]).first()
        if flag is None:
            raise CommandError(f"There is no flag {options['flag']}.")
        if not options["why"].strip():
            raise CommandError("Say why: --why is the note.")
        with transaction.atomic(), acting(find_person(options["by"]), options["why"].strip()):
            settle_flag(flag, _STATES[options["verb"]])
        self.stdout.write(f"{flag.get_state_display().capitalize()}: {flag}.")

    def _list(self, options: dict[str, Any]) -> None:
        flags = Flag.objects.select_related("dataset", "team", "submission__system")
        if not options["all"]:
            flags = flags.filter(state=Flag.State.OPEN)
        if options["dataset"]:
            flags = flags.filter(dataset=find_dataset(options["dataset"]))
        for flag in flags:
            self.stdout.write(
                f"{flag.pk}\t{flag.created_at:%Y-%m-%d}\t{flag.dataset.slug}\t{flag.team.slug}\t{flag.submission_id}\t"
                f"{flag.state}\t{flag.get_kind_display()}: {figures_of(flag)}"
            )
