"""`manage.py flags list|clear|confirm`: manage flags of submissions that look like probes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from leaderboard.management.curating import acting_person, add_actor_arguments, find_dataset
from submissions.admin.quotas import FlagAdmin
from submissions.models import Flag
from submissions.quotas.ledger import flag_details


class Command(BaseCommand):
    help = "List flags of submissions that look like probes, and record decisions."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        list_parser = verbs.add_parser("list", help="list open flags, newest first")
        list_parser.add_argument("--dataset", help="slug of the dataset")
        list_parser.add_argument("--all", action="store_true", help="include settled flags")
        for verb, help_text in (("clear", "mark as not a probe"), ("confirm", "mark as a probe")):
            verb_parser = verbs.add_parser(verb, help=help_text)
            verb_parser.add_argument("flag", type=int, help="number of the flag in the list")
            add_actor_arguments(verb_parser, "note, stored in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """List flags, or clear or confirm one on behalf of a curator. Raises CommandError if it does not exist."""
        if options["verb"] == "list":
            self._list_flags(options)
            return
        flag = Flag.objects.filter(pk=options["flag"]).first()
        if flag is None:
            raise CommandError(f"There is no flag {options['flag']}.")
        operation = {"clear": FlagAdmin.clear, "confirm": FlagAdmin.confirm}[options["verb"]]
        with transaction.atomic(), acting_person(options):
            self.stdout.write(operation.run(flag, options))

    def _list_flags(self, options: dict[str, Any]) -> None:
        """Print the open flags, or with `--all` all flags, one per line with tabs, newest first."""
        flags = Flag.objects.select_related("dataset", "team", "submission__system")
        if not options["all"]:
            flags = flags.filter(state=Flag.State.OPEN)
        if options["dataset"]:
            flags = flags.filter(dataset=find_dataset(options["dataset"]))
        for flag in flags:
            self.stdout.write(
                f"{flag.pk}\t{flag.created_at:%Y-%m-%d}\t{flag.dataset.slug}\t{flag.team.slug}\t{flag.submission_id}\t"
                f"{flag.state}\t{flag.get_kind_display()}: {flag_details(flag)}"
            )
