"""`manage.py import_dataset PATH --slug S`: take in a test collection, or bring one up to date."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evaluation.collections.topics import FIELDS
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from evaluation.text.languages import UnknownLanguage, language_code
from leaderboard.core.audit import acting
from leaderboard.datasets.terms import near_duplicates
from leaderboard.importing.collections.fetching import fetched
from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import DiskSpaceError, ImportResult, import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.management.curating import ProgressLine, find_person, problem_line
from leaderboard.models.datasets import Protection, Visibility


class Command(BaseCommand):
    """Imports a collection from a folder or zip."""

    help = (
        "Import a test collection: a folder or zip with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR) or "
        "qrels.txt (TREC), each plain or .gz; or TREC topics, CSV or SMART files in their place. The same bytes "
        "again change nothing; other bytes make a new version."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What may be said about the dataset. What is not said stays as it is, or gets its default."""
        parser.add_argument("path", type=Path, nargs="?", help="the folder or zip")
        parser.add_argument(
            "--from", dest="source", default="", metavar="SOURCE",
            help="instead of a path: hf:OWNER/NAME[@REVISION] on the Hugging Face hub (HF_ENDPOINT names a mirror), "
            "or ir_datasets:ID by the package of that name",
        )  # fmt: skip
        parser.add_argument("--slug", required=True, help="the dataset's address: /datasets/SLUG/")
        for name in ("name", "task", "domain", "licence", "homepage", "citation", "description"):
            parser.add_argument(f"--{name}")
        parser.add_argument(
            "--ir-datasets-id", help="its name in ir_datasets' catalogue, such as beir/nfcorpus/test"
        )
        parser.add_argument("--beir-name", help="the archive that BEIR hands it out as")
        parser.add_argument(
            "--language",
            type=_language,
            help="a code or an English name, such as de, deu, or German; en by default; BM25's analyzer follows it",
        )
        parser.add_argument("--version-label", default="", help="a name for this version of the content")
        judgements = parser.add_mutually_exclusive_group()
        judgements.add_argument("--open", dest="hidden", action="store_false", default=None)
        judgements.add_argument("--hidden", action="store_true", default=None, help="the default")
        parser.add_argument(
            "--protection", choices=Protection.values, help="of hidden judgements of a new dataset; standard"
        )
        parser.add_argument(
            "--public-share", type=float, metavar="SHARE", help="of a competition's judged queries, 1/3"
        )
        parser.add_argument("--runs-only", action="store_true", default=None, help="there are no documents")
        parser.add_argument("--collecting", action="store_true", help="take runs before there are judgements")
        parser.add_argument(
            "--baseline", type=Path, metavar="RUN", help="compare with this run instead of BM25"
        )
        parser.add_argument(
            "--strict", action="store_true", help="refuse judgements of documents that the corpus lacks"
        )
        parser.add_argument("--split", default="test", help="the judgements that runs are scored against")
        parser.add_argument("--topic-field", choices=FIELDS, help="of TREC topics: the query; the title")
        parser.add_argument(
            "--twin-of",
            metavar="SLUG",
            help="the open dataset whose hidden half this is, over the same corpus",
        )
        parser.add_argument(
            "--twin",
            type=float,
            metavar="SHARE",
            help="draw an open half of the topics, this share, and a hidden one: two datasets, SLUG and SLUG-hidden",
        )
        parser.add_argument("--seed", type=int, default=0, help="of that draw")
        parser.add_argument(
            "--primary", metavar="MEASURE", help="the measure that the board is sorted by, nDCG@10"
        )
        parser.add_argument("--measure", dest="measures", action="append", default=[], help="may be repeated")
        parser.add_argument("--relevance-level", type=int, metavar="GRADE", help="lowest relevant grade, 1")
        parser.add_argument("--drop-self-matches", action="store_true", default=None)
        parser.add_argument(
            "--candidates-only", action="store_true", default=None,
            help="re-ranking: a query's judged documents are its candidates, others are passed over",
        )  # fmt: skip
        for part in ("queries", "documents", "runs"):
            parser.add_argument(f"--{part}-visibility", choices=Visibility.values)
        parser.add_argument(
            "--by", metavar="EMAIL",
            help="whose act it is: an account here; comparing with hidden judgements takes the right to read them",
        )  # fmt: skip
        parser.add_argument("--why", default="imported on the command line", help="kept in the record")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import, and say what was done or everything that is wrong."""
        options["measures"] = tuple(options["measures"])
        said = ImportOptions(**{each.name: options[each.name] for each in fields(ImportOptions)})
        if (options["path"] is None) == (not said.source):
            raise CommandError("Say either the folder or zip, or --from SOURCE.")
        person = find_person(options["by"]) if options["by"] else None
        progress = ProgressLine(self.stdout)
        try:
            with ExitStack() as stack:
                path = options["path"]
                if said.source:
                    path, said = stack.enter_context(fetched(said.source, said, progress.show))
                stack.enter_context(acting(person, options["why"].strip()))
                imported = (
                    [import_dataset(path, said, progress.show)]
                    if options["twin"] is None
                    else import_twin(path, said, options["twin"], options["seed"], progress.show)
                )
        except InvalidContent as error:
            progress.finish()
            raise CommandError(describe(error.report.problems)) from error
        except DiskSpaceError as error:
            progress.finish()
            raise CommandError(str(error)) from error
        progress.finish()
        self.stdout.write("\n".join(map(summary, imported)))
        for warning in dict.fromkeys(each for result in imported for each in near_duplicates(result.dataset)):
            self.stderr.write(self.style.WARNING(warning))


def _language(text: str) -> str:
    try:
        return language_code(text)
    except UnknownLanguage as error:
        raise ArgumentTypeError(str(error)) from error


def describe(problems: tuple[Problem, ...]) -> str:
    """All problems, one paragraph each."""
    lines = [f"Nothing was imported: {len(problems)} problem{'s' if len(problems) != 1 else ''}."]
    for each in problems:
        lines.append(f"{problem_line(each.message, each.lines)}\n  {each.hint}")
    return "\n".join(lines)


def summary(imported: ImportResult) -> str:
    """What the import did, and what the collection holds."""
    dataset, statistics = imported.dataset, imported.version.statistics
    if not imported.changes:
        same = f"Nothing changed: {imported.version} has exactly this content and these settings."
        return f"{same}\n{imported.disclosure()}"
    parts = [f"{statistics['documents']:,} documents"] if "documents" in statistics else []
    more = statistics["all_queries"] - statistics["queries"]
    others = f" to answer and {more:,} of other splits" if more else ""
    parts.append(f"{statistics['queries']:,} queries{others}")
    if imported.qrels is not None:
        judged = imported.qrels.statistics
        parts.append(f"{judged['judgements']:,} judgements of {judged['judged_queries']:,} queries")
        if judged["negative_grades"]:
            parts.append(f"negative grades, taken as unjudged: {judged['negative_grades']:,}")
    lines = [
        f"Imported {imported.version}: {', '.join(parts)}.",
        *imported.remarks,
        f"Changed: {', '.join(imported.changes)}.",
    ]
    if imported.baseline_requested and dataset.state == dataset.State.PREPARING:
        lines.append("Its baseline is requested; the dataset is published when a worker has made it.")
    elif imported.baseline_requested:
        lines.append("Its baseline is requested.")
    elif dataset.state == dataset.State.COLLECTING:
        lines.append("It collects runs; import the judgements when there are some.")
    elif dataset.runs_only and not dataset.entries.filter(is_baseline=True).exists():
        lines.append("It is published without deltas until a baseline run is named with --baseline.")
    return "\n".join([*lines, imported.disclosure()])
