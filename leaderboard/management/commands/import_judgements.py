"""`manage.py import_judgements DATASET FILE`: merge judgements into a dataset's next qrels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evaluation.core.errors import InvalidContent
from evaluation.core.problems import number_of
from leaderboard.core.audit import acting, actor
from leaderboard.datasets.qrels_access import record_reading
from leaderboard.judgements.disclosure import is_secret, may_know, record_comparison_read
from leaderboard.judgements.errors import JudgingRefused
from leaderboard.judgements.imports import (
    Conflicts,
    State,
    bring_judgements,
    check_judgements,
    discard_import,
    request_merge,
)
from leaderboard.judgements.sync_commands import compare_now, merge_now, try_judgements
from leaderboard.management.commands.import_dataset import describe
from leaderboard.management.curating import find_dataset, find_person
from leaderboard.models import Dataset, JudgementImport, Pool

#: Why somebody is not told.
_NOT_TOLD = "what is new and where grades disagree is told to those only who may read hidden judgements."


class Command(BaseCommand):
    """Takes judgements in at once. It reads judgements, so it runs where the scorer runs."""

    help = (
        "Merge judgements (TREC qrels, BEIR's form, or a pool's CSV with grades) into the dataset's next qrels. First "
        "judgements are adopted at once; where results stand on others, a rescore is started and nothing switches."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The file, and what is to be done where grades disagree."""
        parser.add_argument("dataset", help="its slug")
        parser.add_argument("file", type=Path, help="plain, .gz, .zst or .bz2")
        parser.add_argument(
            "--conflicts", choices=Conflicts.values,
            help="where a pair has another grade: keep the old one, replace it, or take the highest",
        )  # fmt: skip
        parser.add_argument("--note", default="", help="where they are from; public")
        parser.add_argument("--pool", type=int, help="the number of the pool that was judged")
        parser.add_argument(
            "--scale-grew", action="store_true", help="grades above the highest present one are meant"
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would come of it; store nothing")
        parser.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is: an account here")
        parser.add_argument("--why", required=True, help="kept in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """Merge, or say everything that is in the way."""
        person, dataset = find_person(options["by"]), find_dataset(options["dataset"])
        if not options["file"].is_file():
            raise CommandError(f"There is no file {options['file']}.")
        try:
            with acting(person, options["why"].strip()):
                self._import(dataset, options)
        except InvalidContent as error:
            raise CommandError(describe(error.report.problems)) from error
        except JudgingRefused as error:
            raise CommandError(str(error)) from error

    def _import(self, dataset: Dataset, options: dict[str, Any]) -> None:
        blind = dataset.current_qrels is not None and not may_know(dataset, actor().person)
        if options["dry_run"]:
            self._try(dataset, options["file"], blind, options["scale_grew"])
            return
        if blind and not options["conflicts"]:
            raise CommandError(f"Say --conflicts keep, replace or highest: {_NOT_TOLD}")
        pool = Pool.objects.filter(pk=options["pool"], dataset=dataset).first() if options["pool"] else None
        if options["pool"] and pool is None:
            raise CommandError(f"{dataset} has no pool {options['pool']}.")
        brought = bring_judgements(
            dataset, options["file"], note=options["note"], pool=pool, scale_grew=options["scale_grew"]
        )
        compare_now(brought)
        if blind:
            self.stdout.write(
                f"{number_of(brought.counts['pairs'], 'judgement')}. {_NOT_TOLD[0].upper()}{_NOT_TOLD[1:]}"
            )
        elif self._nothing(brought):
            self.stdout.write("Nothing changes: they are all there already.")
            return
        elif brought.counts["conflicts"] and not options["conflicts"]:
            discard_import(brought)
            raise CommandError(
                "Grades disagree: say --conflicts keep, replace or highest. Nothing was changed."
            )
        try:
            request_merge(brought, Conflicts(options["conflicts"] or Conflicts.KEEP))
        except JudgingRefused:
            discard_import(brought)
            raise
        self.stdout.write(merge_now(brought))

    def _try(self, dataset: Dataset, file: Path, blind: bool, scale_grew: bool) -> None:
        """Say what a file would bring, as far as whoever acts may know."""
        if blind:
            found = check_judgements(dataset, file, scale_grew=scale_grew)
            self.stdout.write(
                f"The file can be taken: {number_of(found.pairs, 'judgement')}, {found.unjudged:,} not judged yet."
            )
            return
        if dataset.hidden and dataset.current_qrels is not None:
            record_reading(f"{file.name} for {dataset}", dataset.pk, what="comparison")
        compared = try_judgements(dataset, file, scale_grew=scale_grew)
        self._say(compared.counts())

    def _nothing(self, brought: JudgementImport) -> bool:
        """Say what was found; whether nothing of it is new, in which case the import ends."""
        if is_secret(brought, brought.against):
            record_comparison_read(brought, 0)
        self._say(brought.counts)
        nothing = not brought.counts["new"] and not brought.counts["conflicts"]
        if nothing and brought.state != State.DISCARDED:
            discard_import(brought)
        return nothing

    def _say(self, counts: dict[str, Any]) -> None:
        self.stdout.write(
            f"{counts['new']:,} new, {counts['same']:,} the same, {number_of(counts['conflicts'], 'conflict')} "
            f"({counts['raised']:,} higher, {counts['lowered']:,} lower); "
            f"{number_of(counts['queries'], 'query', 'queries')}, {counts['new_queries']:,} of them not judged before."
        )
