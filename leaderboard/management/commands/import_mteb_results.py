"""`manage.py import_mteb_results FOLDER --source URL`: publish results in MTEB's layout as reported rows."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from evaluation.core.problems import InvalidContent, format_count
from leaderboard.core.storage.store import work_folder
from leaderboard.importing.reported.loader import enter_figures
from leaderboard.importing.reported.mteb import Place, read_mteb_results
from leaderboard.management.curating import CurationCommand, find_dataset, list_problems
from leaderboard.models import Benchmark, Source


class Command(CurationCommand):
    """Command that publishes all results of a folder, or none if there are problems."""

    help = (
        "Publish results in MTEB's layout (ORGANISATION__MODEL/REVISION/TASK.json and model_meta.json) as reported "
        "rows. Imports the measures of boards for tasks whose datasets exist; importing again replaces old values."
    )
    right = "leaderboard.add_source"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="folder or zip")
        parser.add_argument(
            "--source", required=True, metavar="URL",
            help="public URL of the folder at a fixed commit, to which rows link",
        )  # fmt: skip
        parser.add_argument(
            "--publication", default="mteb-results", metavar="KEY",
            help="publication of the rows (default: %(default)s); --title, --authors and --year describe a new one",
        )  # fmt: skip
        parser.add_argument("--title", default="Results of MTEB")
        parser.add_argument("--authors", default="MTEB", help="authors as in BibTeX: names joined by “ and ”")
        parser.add_argument("--year", type=int, default=timezone.now().year)
        parser.add_argument(
            "--benchmark", metavar="SLUG",
            help="import only this benchmark's datasets, one result per model and dataset, and ignore invalid files "
            "(for a clone of MTEB's results repository)",
        )  # fmt: skip
        parser.add_argument(
            "--task", dest="tasks", action="append", default=[], metavar="TASK=SLUG[:SPLIT[:SUBSET]]",
            help="dataset of a task that cannot be inferred from its name; repeatable",
        )  # fmt: skip

    def curate(self, path: Path, **options: Any) -> str:
        """Publish all results of the folder or zip as reported rows, and return a summary.

        Raises CommandError with all problems, if there are any.
        """
        source = Source.objects.filter(key=options["publication"]).first() or Source(
            key=options["publication"], url=options["source"], venue="",
            **{name: options[name] for name in ("title", "authors", "year")},
        )  # fmt: skip
        benchmark = Benchmark.objects.filter(slug=options["benchmark"]).first()
        if options["benchmark"] and benchmark is None:
            slugs = ", ".join(Benchmark.objects.values_list("slug", flat=True))
            raise CommandError(f"There is no benchmark {options['benchmark']}. Choose one of: {slugs}.")
        try:
            # Validate the URL even if the publication exists, because the rows link to it.
            Source(url=options["source"]).clean_fields(exclude=["key", "title", "authors", "year"])
            source.clean_fields()
            with work_folder("mteb") as work:
                task_places = dict(map(_parse_task, options["tasks"]))
                results = read_mteb_results(path, options["source"], work, task_places, benchmark)
            enter_figures(source, results.figures)
        except ValidationError as error:
            raise CommandError(
                "; ".join(f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items())
            ) from error
        except InvalidContent as error:
            text = list_problems("The results were not published:", error.report.problems, hints=False)
            raise CommandError(text) from error
        datasets, models = ({getattr(figure, name) for figure in results.figures} for name in ("dataset", "system"))
        summary = (
            f"Published: {format_count(len(results.figures), 'figure')} of "
            f"{format_count(len(models), 'model')} on {format_count(len(datasets), 'dataset')}, "
            f"as reported by {source}."
        )
        return "\n".join([summary, *results.left_out()])


def _parse_task(text: str) -> tuple[str, Place]:
    """Return task, dataset, split, and subset of TASK=SLUG[:SPLIT[:SUBSET]]. Raises CommandError for other text."""
    task, equals, place = text.partition("=")
    if not equals:
        raise CommandError(f"--task {text} should be TASK=SLUG, TASK=SLUG:SPLIT or TASK=SLUG:SPLIT:SUBSET.")
    slug, split, subset = [*place.split(":", 2), "", ""][:3]
    return task, Place(find_dataset(slug), split, subset)
