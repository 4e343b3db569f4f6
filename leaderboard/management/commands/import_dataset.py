"""`manage.py import_dataset PATH --slug S`: take in a test collection, or bring one up to date."""

from argparse import ArgumentParser
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evaluation.core.problems import InvalidContent
from evaluation.text.languages import UnknownLanguage, language_code
from leaderboard.admin.import_form import ImportForm
from leaderboard.datasets.terms import near_duplicates
from leaderboard.importing.collections.fetching import fetch_collection
from leaderboard.importing.collections.importer import DiskSpaceError, ImportResult
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.management.curating import (
    ProgressLine,
    add_form_arguments,
    add_import_arguments,
    describe_refusal,
    importing_person,
    read_form,
)

#: Fields of the form that the command line asks in another way.
_OWN_ARGUMENTS = ("archive", "judgements", "measures")


class Command(BaseCommand):
    help = (
        "Import a test collection: a folder or zip with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR) or "
        "qrels.txt (TREC), each plain or .gz; or TREC topics, CSV or SMART files in their place. The same bytes "
        "again change nothing; other bytes make a new version."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, nargs="?", help="the folder or zip")
        parser.add_argument(
            "--from", dest="source", default="", metavar="SOURCE",
            help="instead of a path: hf:OWNER/NAME[@REVISION] on the Hugging Face hub (HF_ENDPOINT names a mirror), "
            "or ir_datasets:ID by the package of that name",
        )  # fmt: skip
        add_form_arguments(parser, ImportForm, {}, _OWN_ARGUMENTS)
        judgements = parser.add_mutually_exclusive_group()
        judgements.add_argument("--open", dest="hidden", action="store_false", default=None)
        judgements.add_argument("--hidden", action="store_true", default=None, help="the default")
        parser.add_argument("--measure", dest="measures", action="append", default=[], help="may be repeated")
        parser.add_argument(
            "--ir-datasets-id", help="its name in ir_datasets' catalogue, such as beir/nfcorpus/test"
        )
        parser.add_argument("--beir-name", help="the archive that BEIR hands it out as")
        add_import_arguments(
            parser,
            "whose act it is: an account here; comparing with hidden judgements takes the right to read them",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        form = read_form(ImportForm, {}, options, _OWN_ARGUMENTS)
        own = {name: options[name] for name in ("source", "hidden", "ir_datasets_id", "beir_name")}
        # An empty text is meant: it clears what the dataset has.
        own |= {each.name: "" for each in fields(ImportOptions) if options[each.name] == ""}
        chosen = replace(form.options(), measures=tuple(options["measures"]), **own)
        path = options["path"]
        if (path is None) == (not chosen.source):
            raise CommandError("Say either the folder or zip, or --from SOURCE.")
        try:  # before the files are read, which may take long
            language_code(chosen.language or "en")
        except UnknownLanguage as error:
            raise CommandError(f"--language: {error}") from error
        person, progress = importing_person(options), ProgressLine(self.stdout)
        try:
            with ExitStack() as stack:
                if chosen.source:
                    path, chosen = stack.enter_context(fetch_collection(chosen.source, chosen, progress.show))
                stack.enter_context(person)
                imported = form.import_from(path, chosen, progress.show)
        except InvalidContent as error:
            raise CommandError(describe_refusal(error)) from error
        except DiskSpaceError as error:
            raise CommandError(str(error)) from error
        finally:
            progress.finish()
        self.stdout.write("\n".join(map(summary, imported)))
        for warning in dict.fromkeys(each for result in imported for each in near_duplicates(result.dataset)):
            self.stderr.write(self.style.WARNING(warning))


def summary(imported: ImportResult) -> str:
    """Return what the import changed, and what the collection contains."""
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
