"""`manage.py draw_pool DATASET`: write the top-ranked unjudged documents of a dataset's runs to files."""

import shutil
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluation.core.problems import format_count
from evaluation.runs.pooling import PoolTooLarge
from leaderboard.admin.judging import PoolForm
from leaderboard.core.audit import actor
from leaderboard.judgements.comparing import draw_now
from leaderboard.judgements.disclosure import downloadable_forms, may_see_counts
from leaderboard.judgements.pools import JudgingRefused, eligible_runs, fail_pool, record_download, request_pool
from leaderboard.management.curating import CurationCommand, add_form_arguments, find_by_slug
from leaderboard.models import Dataset, Pool, Round, System


class Command(CurationCommand):
    """Command that draws a pool immediately. It reads judgments, so it must run where the scorer runs."""

    help = "Draw a pool of unjudged query-document pairs from a dataset's runs and write its files to a folder."
    subjects = ("dataset",)
    atomic = False
    refusals = (JudgingRefused, PoolTooLarge)
    why_help = "reason, for the audit log"

    def add_more(self, parser: CommandParser) -> None:
        add_form_arguments(parser, PoolForm, {}, skipped=("dataset", "runs"))
        parser.add_argument(
            "--system",
            action="append",
            default=[],
            metavar="SLUG",
            help="use only runs of this system; repeatable",
        )
        parser.add_argument("--to", type=Path, default=Path(), help="folder for the files (default: the current one)")

    def curate(self, dataset: Dataset, to: Path, **options: Any) -> str:
        """Draw a pool, write the files that the acting user may read to the folder `to`, and return a summary."""
        if not to.is_dir():
            raise CommandError(f"The folder {to} does not exist.")
        pool = self._draw(dataset, options)
        forms = downloadable_forms(pool, actor().person)
        for form in forms:
            source, name = record_download(pool, form)
            shutil.copyfile(source, to / name)
            (to / name).chmod(0o600)
            self.stdout.write(str(to / name))
        counts = pool.statistics
        knows = may_see_counts(pool.dataset, actor().person)
        judged_note = f"; {counts['judged']:,} were already judged" if knows else ""
        skipped_queries = format_count(counts["other_queries"], "query", "queries")
        skipped_note = f" Skipped {skipped_queries} of the runs that the dataset does not have." * bool(
            counts["other_queries"]
        )
        lines = [
            f"Pool {pool.pk}: {format_count(counts['pairs'], 'pair')} of "
            f"{format_count(counts['queries'], 'query', 'queries')} from "
            f"{format_count(counts['runs'], 'run')}{judged_note}.{skipped_note}"
        ]
        if "csv" not in forms:
            lines.append("The query texts are hidden, so only users who may read judgments get the CSV file.")
        return "\n".join(lines)

    def _draw(self, dataset: Dataset, options: dict[str, Any]) -> Pool:
        """Request a pool with the command's options, draw it, and return it; if that is refused, mark it as failed."""
        round = find_by_slug(Round, options["round"]) if options["round"] else None
        systems = [find_by_slug(System, slug) for slug in options["system"]]
        depth = options["depth"]
        pool = request_pool(
            dataset,
            depth=PoolForm.base_fields["depth"].initial if depth is None else depth,
            runs=eligible_runs(dataset, round).filter(system__in=systems) if systems else None,
            runs_per_team=options["runs_per_team"],
            round=round,
        )
        try:
            draw_now(pool)
        except (PoolTooLarge, JudgingRefused) as error:
            fail_pool(pool.pk, str(error))
            raise
        return pool
