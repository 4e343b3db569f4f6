"""`manage.py import_benchmark NAME`: import the available datasets of a known benchmark."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from leaderboard.importing.benchmarks.catalogue import benchmarks, completeness
from leaderboard.importing.benchmarks.importer import (
    MemberOutcome,
    Outcome,
    UnknownBenchmark,
    import_benchmark,
)
from leaderboard.management.curating import ProgressLine, add_import_arguments, importing_person


class Command(BaseCommand):
    """Command that imports a benchmark's datasets and skips those that exist, so that it can be resumed."""

    help = "Import the datasets of a benchmark with open judgments from the sources in the catalog."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("benchmark", help=f"one of {', '.join(benchmarks())}")
        parser.add_argument("--only", nargs="+", default=[], metavar="SLUG", help="import only these datasets")
        add_import_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the datasets one by one and print a table of the outcomes."""
        progress, outcomes = ProgressLine(self.stdout), list[MemberOutcome]()
        try:
            with importing_person(options):
                for result in import_benchmark(options["benchmark"], options["only"], progress.show):
                    progress.finish()
                    self.stdout.write(f"{result.dataset.slug}: {result.outcome}. {result.detail}")
                    outcomes.append(result)
        except UnknownBenchmark as error:
            raise CommandError(str(error)) from error
        finally:
            progress.finish()
        rows = [("dataset", "outcome", "published BM25", "")]
        for outcome in outcomes:
            row = outcome.dataset
            bm25 = f"{row.primary} {row.bm25:.3f}" if row.bm25 is not None else "—"
            rows.append((row.slug, str(outcome.outcome), bm25, outcome.detail))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]
        self.stdout.write("\n".join(["", *lines]))
        if state := completeness(options["benchmark"]):
            self.stdout.write(
                f"The site accepts runs for {state['here']} of {state['of']} datasets. Imported ones follow once their "
                "BM25 baseline is ready."
            )
        if failure_count := sum(result.outcome == Outcome.FAILED for result in outcomes):
            datasets = "1 dataset was" if failure_count == 1 else f"{failure_count} datasets were"
            raise CommandError(f"{datasets} not imported. Run the same command again to retry.")
