"""`manage.py import_dataset PATH --slug S`: import or update a test collection."""

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

#: Form fields with special command-line arguments.
_OWN_ARGUMENTS = ("judgements", "measures")


class Command(BaseCommand):
    help = (
        "Import a test collection: a folder or zip with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR) or "
        "qrels.txt (TREC), each plain or .gz; or TREC topics, CSV or SMART files instead. Importing the same content "
        "again changes nothing; other content creates a new version."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, nargs="?", help="folder or zip")
        parser.add_argument(
            "--from",
            dest="source",
            default="",
            metavar="SOURCE",
            help="source instead of a path: hf:OWNER/NAME[@REVISION] for the Hugging Face hub (HF_ENDPOINT sets a "
            "mirror), or ir_datasets:ID for the package of that name",
        )
        add_form_arguments(parser, ImportForm, {}, _OWN_ARGUMENTS)
        judgements = parser.add_mutually_exclusive_group()
        judgements.add_argument("--open", dest="hidden", action="store_false", default=None)
        judgements.add_argument("--hidden", action="store_true", default=None, help="the default")
        parser.add_argument("--measure", dest="measures", action="append", default=[], help="measure; repeatable")
        parser.add_argument("--ir-datasets-id", help="id in the catalog of ir_datasets, such as beir/nfcorpus/test")
        parser.add_argument("--beir-name", help="name of BEIR's archive, such as nfcorpus")
        add_import_arguments(
            parser,
            "account in whose name to import; comparing with hidden judgments requires permission to read them",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the folder, zip, or fetched collection; print a summary and warnings for each dataset."""
        form = read_form(ImportForm, {}, options, _OWN_ARGUMENTS)
        overrides = {name: options[name] for name in ("source", "hidden", "ir_datasets_id", "beir_name")}
        # An empty text is intended: it clears the dataset's value.
        overrides |= {field.name: "" for field in fields(ImportOptions) if options.get(field.name) == ""}
        import_options = replace(form.options(), measures=tuple(options["measures"]), **overrides)
        path = options["path"]
        if (path is None) == (not import_options.source):
            raise CommandError("Give either a folder or zip, or --from SOURCE.")
        try:  # Checked before reading the files, which may take long.
            language_code(import_options.language or "en")
        except UnknownLanguage as error:
            raise CommandError(f"--language: {error}") from error
        person, progress = importing_person(options), ProgressLine(self.stdout)
        try:
            with ExitStack() as stack:
                if import_options.source:
                    path, import_options = stack.enter_context(
                        fetch_collection(import_options.source, import_options, progress.show)
                    )
                stack.enter_context(person)
                imported = form.import_from(path, import_options, progress.show)
        except InvalidContent as error:
            raise CommandError(describe_refusal(error)) from error
        except DiskSpaceError as error:
            raise CommandError(str(error)) from error
        finally:
            progress.finish()
        self.stdout.write("\n".join(map(summary, imported)))
        for warning in dict.fromkeys(text for result in imported for text in near_duplicates(result.dataset)):
            self.stderr.write(self.style.WARNING(warning))


def summary(imported: ImportResult) -> str:
    """Return the sizes of an imported collection, the changes, and the next steps, or that nothing changed."""
    dataset, statistics = imported.dataset, imported.version.statistics
    if not imported.changes:
        same = f"Nothing changed: {imported.version} has exactly this content and these settings."
        return f"{same}\n{imported.disclosure()}"
    parts = [f"{statistics['documents']:,} documents"] if "documents" in statistics else []
    other_queries = statistics["all_queries"] - statistics["queries"]
    other_splits_note = f" with judgments and {other_queries:,} of other splits" if other_queries else ""
    parts.append(f"{statistics['queries']:,} queries{other_splits_note}")
    if imported.qrels is not None:
        judgement_statistics = imported.qrels.statistics
        parts.append(
            f"{judgement_statistics['judgements']:,} judgments of {judgement_statistics['judged_queries']:,} queries"
        )
        if judgement_statistics["negative_grades"]:
            parts.append(f"negative grades, treated as unjudged: {judgement_statistics['negative_grades']:,}")
    lines = [
        f"Imported {imported.version}: {', '.join(parts)}.",
        *imported.remarks,
        f"Changed: {', '.join(imported.changes)}.",
    ]
    if imported.baseline_requested and dataset.state == dataset.State.PREPARING:
        lines.append("Its baseline is requested; the dataset is published once a worker has built it.")
    elif imported.baseline_requested:
        lines.append("Its baseline is requested.")
    elif dataset.state == dataset.State.COLLECTING:
        lines.append("It collects runs; import the judgments once they exist.")
    elif dataset.runs_only and not dataset.entries.filter(is_baseline=True).exists():
        lines.append("It is published without deltas until you import a baseline run with --baseline.")
    return "\n".join([*lines, imported.disclosure()])
