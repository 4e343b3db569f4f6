"""`manage.py prepare_query_pages`: create the files that query pages need for older runs and corpora."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.datasets.derived_files import prepare_files
from leaderboard.models import Dataset, Run


class Command(BaseCommand):
    """Command that prepares the runs and corpora of open datasets; it skips those that are ready."""

    help = "Extract the top documents of the runs of open datasets, and excerpts of these documents."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("datasets", nargs="*", help="slugs (default: all open datasets)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the datasets one by one."""
        datasets = Dataset.objects.filter(state=Dataset.State.PUBLISHED, hidden=False)
        datasets = datasets.exclude(current_qrels=None).select_related("current_version")
        if slugs := options["datasets"]:
            datasets = datasets.filter(slug__in=slugs)
            if unknown_slugs := sorted(set(slugs).difference(datasets.values_list("slug", flat=True))):
                raise CommandError(f"no published dataset with open judgments: {', '.join(unknown_slugs)}")
        for dataset in datasets:
            runs = Run.objects.filter(version=dataset.current_version_id).values_list("sha256", flat=True)
            prepare_files(dataset, runs.distinct())
            self.stdout.write(f"{dataset.slug}: {runs.distinct().count()} runs")
