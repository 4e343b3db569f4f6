"""`manage.py draw_pool DATASET`: what its runs rank first and nobody has judged, as files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evaluation.core.problems import number_of
from evaluation.runs.pooling import PoolTooLarge
from leaderboard.core.audit import acting, actor
from leaderboard.judgements.disclosure import may_know, offered_forms
from leaderboard.judgements.errors import JudgingRefused
from leaderboard.judgements.pools import eligible_runs, give_up_pool, pool_file, request_pool
from leaderboard.judgements.sync_commands import draw_now
from leaderboard.management.curating import find_dataset, find_person, find_system
from leaderboard.models import Pool, Round


class Command(BaseCommand):
    """Draws a pool at once. It reads judgements, so it runs where the scorer runs."""

    help = "Draw a pool of unjudged pairs from a dataset's runs, and write its files to a folder."

    def add_arguments(self, parser: CommandParser) -> None:
        """Of which runs, how deep, and where to."""
        parser.add_argument("dataset", help="its slug")
        parser.add_argument("--depth", type=int, default=10, help="first documents of each query, 10")
        parser.add_argument(
            "--runs-per-team", type=int, help="of each team the runs of highest priority; otherwise all runs"
        )
        parser.add_argument("--round", metavar="SLUG", help="only runs that came in this round")
        parser.add_argument(
            "--system", action="append", default=[], metavar="SLUG", help="only this one's; may be repeated"
        )
        parser.add_argument("--to", type=Path, default=Path(), help="the folder for the files; here")
        parser.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is: an account here")
        parser.add_argument("--why", required=True, help="kept in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """Draw, and write the files."""
        folder: Path = options["to"]
        if not folder.is_dir():
            raise CommandError(f"There is no folder {folder}.")
        with acting(find_person(options["by"]), options["why"].strip()):
            pool = self._drawn(options)
            forms = offered_forms(pool, actor().person)
            knows = may_know(pool.dataset, actor().person)
            for form in forms:
                source, name = pool_file(pool, form)
                shutil.copyfile(source, folder / name)
                (folder / name).chmod(0o600)
                self.stdout.write(str(folder / name))
        found = pool.statistics
        judged = f"; {found['judged']:,} were judged already" if knows else ""
        self.stdout.write(
            f"Pool {pool.pk}: {found['pairs']:,} pairs of {found['queries']:,} queries "
            f"from {number_of(found['runs'], 'run')}{judged}.{_others(found['other_queries'])}"
        )
        if "csv" not in forms:
            self.stdout.write("The queries' texts are hidden: the CSV is for those who may read judgements.")

    def _drawn(self, options: dict[str, Any]) -> Pool:
        dataset = find_dataset(options["dataset"])
        round = Round.objects.filter(slug=options["round"]).first() if options["round"] else None
        if options["round"] and round is None:
            raise CommandError(f"There is no round {options['round']}.")
        systems = [find_system(slug) for slug in options["system"]]
        try:
            pool = request_pool(
                dataset,
                depth=options["depth"],
                runs=eligible_runs(dataset, round).filter(system__in=systems) if systems else None,
                runs_per_team=options["runs_per_team"],
                round=round,
            )
        except JudgingRefused as error:
            raise CommandError(str(error)) from error
        try:
            draw_now(pool)
        except PoolTooLarge as error:
            give_up_pool(pool.pk, str(error))
            raise CommandError(str(error)) from error
        return pool


def _others(count: int) -> str:
    if not count:
        return ""
    return f" Left out: {number_of(count, 'query', 'queries')} of the runs that the dataset does not ask."
