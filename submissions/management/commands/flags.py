"""`manage.py flags list|clear|confirm`: submissions that look like probes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from leaderboard.management.curating import acting_person, add_actor_arguments, find_dataset
from submissions.admin.quotas import FlagAdmin
from submissions.models import Flag
from submissions.quotas.ledger import flag_details


class Command(BaseCommand):
    help = "Which submissions look like probes, and what a curator made of it."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="open ones, the newest first")
        listed.add_argument("--dataset", help="slug")
        listed.add_argument("--all", action="store_true", help="settled ones too")
        for verb, help_text in (("clear", "it is honest work"), ("confirm", "it is a probe")):
            settled = verbs.add_parser(verb, help=help_text)
            settled.add_argument("flag", type=int, help="its number in the list")
            add_actor_arguments(settled, "the note, kept in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            self._list(options)
            return
        flag = Flag.objects.filter(pk=options["flag"]).first()
        if flag is None:
            raise CommandError(f"There is no flag {options['flag']}.")
        operation = {"clear": FlagAdmin.clear, "confirm": FlagAdmin.confirm}[options["verb"]]
        with transaction.atomic(), acting_person(options):
            self.stdout.write(operation.run(flag, options))

    def _list(self, options: dict[str, Any]) -> None:
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
