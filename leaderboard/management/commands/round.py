"""`manage.py round create|change|reveal SLUG`: manage rounds as in the admin."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from leaderboard.core.text.dates import format_moment
from leaderboard.management.curating import CurationCommand, find_by_slug, find_dataset, read_moment
from leaderboard.models import Benchmark, Round
from leaderboard.rounds.lifecycle import RevealTooEarly, quota_warning, reveal, save_round

#: Options that are stored unchanged.
_STORED_OPTIONS = ("name", "description", "runs_per_team", "visible_per_team", "takes_late", "per_topic_at_reveal")


class Command(CurationCommand):
    help = "Announce a round of a dataset or a benchmark, change it, or reveal its results."
    refusals = (ValueError, RevealTooEarly, ValidationError)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["create", "change", "reveal"])
        parser.add_argument("slug", help="slug of the round")
        parser.add_argument("--name")
        parser.add_argument("--description", help="rules, in Markdown")
        parser.add_argument("--dataset", help="slug of the dataset; alternative: --benchmark")
        parser.add_argument("--benchmark", help="slug of the benchmark; the round covers all its datasets")
        for name in ("opens", "closes", "reveals"):
            parser.add_argument(f"--{name}", metavar="TIME", help="time in UTC, such as 2026-12-05T12:00")
        parser.add_argument("--runs-per-team", type=int)
        parser.add_argument("--visible-per-team", type=int)
        parser.add_argument("--no-late", dest="takes_late", action="store_false", default=None)
        parser.add_argument(
            "--no-topics", dest="per_topic_at_reveal", action="store_false", default=None,
            help="reveal no scores per topic, because the judgments will be used again",
        )  # fmt: skip

    def curate(self, **options: Any) -> str:
        """Create, change, or reveal the round, and return a message."""
        slug = options["slug"]
        if options["verb"] == "create":
            if Round.objects.filter(slug=slug).exists():
                raise CommandError(f"The round {slug} exists already. Change it, or choose another slug.")
            if missing_times := [name for name in ("opens", "closes", "reveals") if not options[name]]:
                raise CommandError(f"Give the times: {', '.join(f'--{name} TIME' for name in missing_times)}.")
            return self._write(Round(slug=slug, name=slug), options)
        row = find_by_slug(Round, slug)
        if options["verb"] == "change":
            return self._write(row, options)
        return f"Revealed: {reveal(row)}."

    def _write(self, row: Round, options: dict[str, Any]) -> str:
        """Set the given options on the round, save it, and return a message with its times.

        Raises CommandError if the round is invalid.
        """
        if options["dataset"]:
            row.dataset = find_dataset(options["dataset"])
        if options["benchmark"]:
            row.benchmark = find_by_slug(Benchmark, options["benchmark"])
        for name in ("opens", "closes", "reveals"):
            if options[name]:
                setattr(row, f"{name}_at", read_moment(options[name]))
        for name in _STORED_OPTIONS:
            if options[name] is not None:
                setattr(row, name, options[name])
        try:
            save_round(row)
        except ValidationError as error:
            lines = [f"{field}: {text}" for field, texts in error.message_dict.items() for text in texts]
            raise CommandError("\n".join(lines)) from error
        if warning := quota_warning(row):
            self.stderr.write(self.style.WARNING(warning))
        opens_at, closes_at, reveals_at = map(format_moment, (row.opens_at, row.closes_at, row.reveals_at))
        return f"{row}: opens {opens_at}, closes {closes_at}, revealed from {reveals_at}."
