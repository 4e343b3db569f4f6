"""`manage.py quota show|refund|except|end`: what teams have used, and other quotas for single ones."""

import argparse
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from leaderboard.management import curating
from leaderboard.models import Dataset, Team, User
from submissions.accounts.permissions import teams_of
from submissions.models import QuotaUse
from submissions.quotas.counting import Quota, Window, quotas_for
from submissions.quotas.ledger import end_exception, grant_exception, refund_unit


class Command(BaseCommand):
    """Shows and changes quotas."""

    help = "What a person has used of quotas; units given back; another quota for one team."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        show = verbs.add_parser("show", help="what a person may still submit")
        show.add_argument("email")
        refund = verbs.add_parser("refund", help="give back what a submission cost")
        refund.add_argument("submission", help="its id")
        refund.add_argument("--dataset", help="slug: on this dataset alone")
        other = verbs.add_parser("except", help="another quota for a team")
        ending = verbs.add_parser("end", help="the dataset's own quota again")
        for each in (other, ending):
            each.add_argument("team", help="slug")
            each.add_argument("--dataset", help="slug; left out: every hidden dataset")
        other.add_argument("--daily", type=_limit, required=True, help="a number, or “none” for no limit")
        other.add_argument("--monthly", type=_limit, required=True, help="the same by calendar month")
        other.add_argument("--until", help="a day (its beginning, UTC), or YYYY-MM-DDTHH:MM")
        for each in (refund, other, ending):
            curating.add_actor_arguments(each, "kept in the record; of a refund its people read it")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "show":
            self._show(curating.find_person(options["email"]))
            return
        act = {"refund": self._refund, "except": self._except, "end": self._end}[options["verb"]]
        try:
            with transaction.atomic(), curating.acting_person(options):
                self.stdout.write(act(options))
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _show(self, person: User) -> None:
        hidden = Dataset.objects.open_for_runs().filter(hidden=True)
        quotas = [*chain(*quotas_for(person, list(teams_of(person)), hidden).values())]
        self.stdout.write("\n".join(map(_line, quotas)) or "Nothing is limited.")

    def _refund(self, options: dict[str, Any]) -> str:
        uses = QuotaUse.objects.filter(
            submission=options["submission"], kind=QuotaUse.Kind.SUBMISSION, refunded_at=None
        )
        if options["dataset"]:
            uses = uses.filter(dataset=curating.find_dataset(options["dataset"]))
        if not uses:
            raise CommandError(f"Submission {options['submission']} has cost nothing that is not given back.")
        for use in uses:
            refund_unit(use)
        return f"Given back on {', '.join(str(use.dataset) for use in uses)}."

    def _except(self, options: dict[str, Any]) -> str:
        until = curating.read_moment(options["until"]) if options["until"] else None
        row = grant_exception(
            curating.find_by_slug(Team, options["team"]), _dataset(options),
            daily=options["daily"], monthly=options["monthly"], until=until,
        )  # fmt: skip
        daily, monthly = ("no limit" if each is None else each for each in (row.daily, row.monthly))
        ending = f" until {row.until:%Y-%m-%d %H:%M} UTC" if row.until else ""
        return f"{row}: {daily} a day, {monthly} a month{ending}."

    def _end(self, options: dict[str, Any]) -> str:
        team, dataset = curating.find_by_slug(Team, options["team"]), _dataset(options)
        end_exception(team, dataset)
        return f"{team} has the usual quota on {dataset or 'every dataset'} again."


def _line(quota: Quota) -> str:
    return f"{quota.dataset.slug}\t{quota.team or '-'}\t{_used(quota.day)} today\t{_used(quota.month)} this month"


def _used(window: Window) -> str:
    return f"{window.used} of {'any number' if window.limit is None else window.limit}"


def _dataset(options: dict[str, Any]) -> Dataset | None:
    return curating.find_dataset(options["dataset"]) if options["dataset"] else None


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdigit() or int(text) > 32767:
        raise argparse.ArgumentTypeError(f"{text} is neither a number nor “none”")
    return int(text)
