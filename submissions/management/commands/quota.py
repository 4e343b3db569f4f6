"""`manage.py quota show|refund|except|end`: show and change quotas."""

import argparse
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from leaderboard.management import curating
from leaderboard.models import Dataset, Team, User
from submissions.accounts.permissions import get_teams
from submissions.models import QuotaUse
from submissions.quotas.counting import Window, limited_quotas
from submissions.quotas.ledger import end_exception, grant_exception, refund_unit


class Command(BaseCommand):
    """Command that shows quotas, refunds submissions, and manages exceptions."""

    help = "Show a user's quotas, refund submissions, or set another quota for a team."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("show", help="show the quotas of a user").add_argument("email")
        refund_parser = verbs.add_parser("refund", help="refund a submission")
        refund_parser.add_argument("submission", help="id of the submission")
        refund_parser.add_argument("--dataset", help="slug of a dataset, to refund only this one")
        except_parser = verbs.add_parser("except", help="set another quota for a team")
        end_parser = verbs.add_parser("end", help="restore the dataset's quota")
        for verb in (except_parser, end_parser):
            verb.add_argument("team", help="slug of the team")
            verb.add_argument("--dataset", help="slug of the dataset (default: all hidden datasets)")
        except_parser.add_argument(
            "--daily", type=_parse_limit, required=True, help="submissions per day, or “none” for no limit"
        )
        except_parser.add_argument(
            "--monthly",
            type=_parse_limit,
            required=True,
            help="submissions per calendar month, or “none” for no limit",
        )
        except_parser.add_argument("--until", help="end of the exception (UTC): YYYY-MM-DD or YYYY-MM-DDTHH:MM")
        for verb in (refund_parser, except_parser, end_parser):
            curating.add_actor_arguments(verb, "reason, stored in the record; the team can see the reason of a refund")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show a user's quotas, or refund a submission, set a team's exception, or end it on behalf of a curator."""
        if options["verb"] == "show":
            self._show_quotas(curating.find_person(options["email"]))
            return
        act = {"refund": self._refund, "except": self._add_exception, "end": self._end}[options["verb"]]
        try:
            with transaction.atomic(), curating.acting_person(options):
                self.stdout.write(act(options))
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _show_quotas(self, person: User) -> None:
        hidden_datasets = Dataset.objects.open_for_runs().filter(hidden=True)
        quotas = [*chain(*limited_quotas(person, list(get_teams(person)), hidden_datasets).values())]
        for quota in quotas:
            usage = f"{_usage(quota.day)} today\t{_usage(quota.month)} this month"
            self.stdout.write(f"{quota.dataset.slug}\t{quota.team or '-'}\t{usage}")
        if not quotas:
            self.stdout.write("No dataset is limited.")

    def _refund(self, options: dict[str, Any]) -> str:
        """Refund the submission on all its datasets, or on `--dataset`.

        Raises CommandError if nothing can be refunded.
        """
        uses = QuotaUse.objects.filter(
            submission=options["submission"], kind=QuotaUse.Kind.SUBMISSION, refunded_at=None
        )
        if options["dataset"]:
            uses = uses.filter(dataset=curating.find_dataset(options["dataset"]))
        if not uses:
            raise CommandError(f"Submission {options['submission']} has no quota use left to refund.")
        for use in uses:
            refund_unit(use)
        return f"Refunded on {', '.join(str(use.dataset) for use in uses)}."

    def _add_exception(self, options: dict[str, Any]) -> str:
        """Store the team's own quota and describe it."""
        end_time = curating.read_moment(options["until"]) if options["until"] else None
        row = grant_exception(
            curating.find_by_slug(Team, options["team"]),
            _dataset(options),
            daily=options["daily"],
            monthly=options["monthly"],
            until=end_time,
        )
        daily, monthly = ("no limit" if limit is None else limit for limit in (row.daily, row.monthly))
        ending = f" until {row.until:%Y-%m-%d %H:%M} UTC" if row.until else ""
        return f"{row}: {daily} per day, {monthly} per month{ending}."

    def _end(self, options: dict[str, Any]) -> str:
        team, dataset = curating.find_by_slug(Team, options["team"]), _dataset(options)
        end_exception(team, dataset)
        return f"{team} has the default quota on {dataset or 'all datasets'} again."


def _usage(window: Window) -> str:
    return f"{window.used} of {'any number' if window.limit is None else window.limit}"


def _dataset(options: dict[str, Any]) -> Dataset | None:
    return curating.find_dataset(options["dataset"]) if options["dataset"] else None


def _parse_limit(text: str) -> int | None:
    """Parse a number of submissions; None for “none”. Raises ArgumentTypeError for other texts."""
    if text == "none":
        return None
    if not text.isdigit() or int(text) > 32767:
        raise argparse.ArgumentTypeError(f"{text} is neither a number nor “none”")
    return int(text)
