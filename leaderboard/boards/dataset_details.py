"""Details of a dataset's page: example, loading snippets, versions of judgments, pending runs, and remarks."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urljoin

from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.text import Truncator

from leaderboard.core.anonymity import public_columns
from leaderboard.datasets.files import EXCLUDED_NAME
from leaderboard.datasets.problems import missing_documents
from leaderboard.judgements.rescoring.switched import rescore_pages, unpublished_judgements
from leaderboard.models import (
    CollectionProfile,
    Dataset,
    DatasetFile,
    Entry,
    EntryQuerySet,
    Qrels,
    Run,
    Visibility,
)
from leaderboard.results.profiles.public import Neighbour, neighbours
from leaderboard.systems.baselines import BM25

#: Maximum length of the shown part of a query and of a document, in characters.
QUERY_LENGTH, DOCUMENT_LENGTH = 300, 600
#: URL of BEIR's own files.
_BEIR = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/{name}.zip"


class QueryExample(NamedTuple):
    """A query and a document, truncated if long; `grade` is None if their relevance is unknown or hidden."""

    query_id: str
    query: str
    document_id: str
    title: str
    text: str
    grade: int | None


class LoadingSnippet(NamedTuple):
    tool: str
    language: str
    code: str


class JudgedVersion(NamedTuple):
    """A version of the judgments: its date, and a text on its changes."""

    version: str
    split: str
    number: int
    date: datetime.date
    changes: str
    current: bool
    #: URL of the page on the effects of the change; empty if no board was switched to these judgments.
    page: str = ""


class DatasetDetails(NamedTuple):
    """Details of a dataset's page; `group` is the dataset that it is a part of, with slug and name."""

    example: QueryExample | None
    snippets: list[LoadingSnippet]
    judged: list[JudgedVersion]
    group: Mapping[str, Any] | None
    neighbours: list[Neighbour]


def dataset_details(dataset: Mapping[str, Any], files: Sequence[DatasetFile], site: str) -> DatasetDetails:
    """Return example, loading snippets, versions of judgments, and similar datasets for a dataset's page.

    `dataset` is a row with `pages.DATASET_FIELDS`, `files` are those that the visitor may download, and `site` is the
    site's address for the commands. Takes at most five database queries.
    """
    return DatasetDetails(
        example=example(dataset),
        snippets=list(_loading_snippets(dataset, files, site)),
        judged=judged_versions(dataset),
        group=Dataset.objects.listed().filter(pk=dataset["part_of_id"]).values("slug", "name").first()
        if dataset["part_of_id"]
        else None,
        neighbours=neighbours(dataset["current_version_id"]) if has_public_documents(dataset) else [],
    )


def has_public_documents(dataset: Mapping[str, Any]) -> bool:
    """Return whether a dataset's documents are stored on this site and public."""
    is_stored = bool(dataset.get("current_version__corpus_sha256")) and not dataset.get("runs_only")
    return is_stored and dataset.get("documents_visibility") == Visibility.PUBLIC


def example(dataset: Mapping[str, Any]) -> QueryExample | None:
    """Return the stored example of a query and a document, truncated, or None if none may be shown.

    The queries and documents must be public. A grade must be from the current judgments, and these must not be hidden.
    """
    if not has_public_documents(dataset) or dataset["queries_visibility"] != Visibility.PUBLIC:
        return None
    profile = CollectionProfile.objects.filter(version=dataset["current_version_id"])
    stored_example = profile.values_list("example", flat=True).first() or {}
    if "query" not in stored_example or "document" not in stored_example:
        return None
    basis_qrels = stored_example.get("basis", {}).get("qrels")
    if stored_example["grade"] is not None and (dataset["hidden"] or basis_qrels != dataset["current_qrels_id"]):
        return None
    query, document = stored_example["query"], stored_example["document"]
    return QueryExample(
        query["id"],
        _truncate(query["text"], QUERY_LENGTH),
        document["id"],
        _truncate(document["title"], QUERY_LENGTH),
        _truncate(document["text"], DOCUMENT_LENGTH),
        stored_example["grade"],
    )


def _truncate(text: str, length: int) -> str:
    """Return the text on one line, cut between words and with an ellipsis if it has more than `length` characters."""
    line = " ".join(text[: 4 * length].split())
    if len(line) <= length:
        return line
    whole_words = line[: length - 1].rpartition(" ")[0]
    return (whole_words or Truncator(line).chars(length - 1, truncate="")).rstrip(" ,;:.-–—") + "…"


def _loading_snippets(dataset: Mapping[str, Any], files: Sequence[DatasetFile], site: str) -> Iterable[LoadingSnippet]:
    """Yield code that loads the dataset with ir_datasets and BEIR, and commands that download its files.

    Sources that do not have the dataset are omitted. If the qrels of the current split can be downloaded, the last
    command scores a run.
    """
    if dataset["ir_datasets_id"]:
        code = (
            f'import ir_datasets\n\ndataset = ir_datasets.load("{dataset["ir_datasets_id"]}")\n'
            "queries = {query.query_id: query for query in dataset.queries_iter()}\n"
            "documents = dataset.docs_store()"
        )
        yield LoadingSnippet("ir_datasets", "Python", code)
    if dataset["beir_name"]:
        yield LoadingSnippet("BEIR", "Python", _beir_code(dataset["beir_name"], dataset["current_qrels__split"]))
    if files:
        kinds = DatasetFile.Kind
        offered_kinds = (kinds.CORPUS, kinds.QUERIES, kinds.QRELS, kinds.EXCLUDED)
        qrels_name = f"qrels.{dataset['current_qrels__split']}.tsv.gz"
        file_names = [
            file.name
            for file in files
            if file.kind in offered_kinds and (file.kind != kinds.QRELS or file.name == qrels_name)
        ]
        lines = [
            f"curl -O {urljoin(site, reverse('dataset-file', args=[dataset['slug'], name]))}" for name in file_names
        ]
        if qrels_name in file_names:
            options = f" --relevance-level {dataset['relevance_level']}" if dataset["relevance_level"] > 1 else ""
            options += " --drop-self-matches" if dataset["drop_self_matches"] else ""
            options += " --candidates-only" if dataset["candidates_only"] else ""
            options += f" --excluded {EXCLUDED_NAME}" if EXCLUDED_NAME in file_names else ""
            lines.append(f"python -m evaluation score --qrels {qrels_name}{options} --run run.txt")
        yield LoadingSnippet("Download", "shell", "\n".join(lines))


def _beir_code(name: str, split: str | None) -> str:
    """Return Python code that downloads a dataset of BEIR and loads it.

    `name` may include a part, such as `cqadupstack/android`. If `split` is None, the code loads BEIR's usual split.
    """
    split = split or ("dev" if name == "msmarco" else "test")
    address = _BEIR.format(name=name.partition("/")[0])
    return (
        "from beir import util\nfrom beir.datasets.data_loader import GenericDataLoader\n\n"
        f'folder = util.download_and_unzip("{address}", "datasets")\n'
        + (f'folder += "/{name.partition("/")[2]}"\n' if "/" in name else "")
        + f'corpus, queries, qrels = GenericDataLoader(folder).load(split="{split}")'
    )


def judged_versions(dataset: Mapping[str, Any]) -> list[JudgedVersion]:
    """Return the versions of the judgments that boards have used, newest first, with their changes.

    For hidden judgments the texts only say that they changed. A dataset without a current version has none.
    """
    if dataset["current_version_id"] is None:
        return []
    rows: list[Any] = list(
        Qrels.objects.filter(version__dataset=dataset["pk"])
        .order_by("created_at", "pk")
        .values_list(
            "pk",
            "version_id",
            "version__label",
            "version__number",
            "split",
            "number",
            "statistics",
            "created_at",
            named=True,
        )
    )
    if any(row.pk != dataset["current_qrels_id"] for row in rows):  # The current judgments are always shown.
        unpublished_ids = set(unpublished_judgements(dataset["pk"]).values_list("pk", flat=True))
        rows = [row for row in rows if row.pk not in unpublished_ids]
    pages = rescore_pages(dataset["pk"], dataset["slug"]) if len(rows) > 1 else {}
    versions = []
    for previous, row in zip([None, *rows], rows, strict=False):
        versions.append(
            JudgedVersion(
                version=row.version__label or f"version {row.version__number}",
                split=row.split,
                number=row.number,
                date=row.created_at.date(),
                changes=_describe_changes(previous, row, hidden=dataset["hidden"]),
                current=row.pk == dataset["current_qrels_id"],
                page=pages.get(row.pk, ""),
            )
        )
    return versions[::-1]


def _describe_changes(previous: Any, row: Any, *, hidden: bool) -> str:
    """Return as text how a version of the judgments differs from the previous one.

    The text of the first version, whose `previous` is None, has its numbers of judgments and queries. For hidden
    judgments no numbers are given.
    """
    statistics = row.statistics
    if previous is None:
        if hidden or "judgements" not in statistics:
            return ""
        return (
            f"{statistics['judgements']:,} judgments of {statistics.get('judged_queries', 0):,} queries, "
            f"{statistics.get('relevant', 0):,} relevant."
        )
    texts = " Queries or documents changed, too." if previous.version_id != row.version_id else ""
    split = f" The split is now {row.split}." if previous.split != row.split else ""
    if hidden:
        return f"Judgments changed.{texts}{split}"
    differences = [
        f"{statistics[name] - previous.statistics[name]:+,} {label}".replace("-", "−")
        for name, label in (
            ("judgements", "judgments"),
            ("judged_queries", "queries"),
            ("relevant", "relevant"),
        )
        if name in statistics and name in previous.statistics and statistics[name] != previous.statistics[name]
    ]
    summary = ", ".join(differences) or "Different judgments of the same number"
    return f"{summary}.{texts}{split}"


class AwaitingRun(NamedTuple):
    """A public run of a collecting dataset; `date` is the day of its submission.

    `system_slug` is None for a system without any result, which has no page.
    """

    system: str
    system_slug: str | None
    team: str
    team_slug: str | None
    tag: str
    run_type: str
    late: bool
    date: str
    submission: str


def awaiting_runs(dataset: Mapping[str, Any]) -> list[AwaitingRun]:
    """Return the public runs that wait for judgments, oldest first.

    There are none unless the dataset is collecting runs and has no judgments yet.
    """
    if dataset["state"] != Dataset.State.COLLECTING or dataset["current_qrels_id"] is not None:
        return []
    rows = (
        Run.objects.filter(version=dataset["current_version_id"], public=True, evaluations=None)
        .order_by("created_at", "pk")
        .annotate(has_page=Exists(EntryQuerySet(Entry).known().filter(system=OuterRef("system"))))
        .values(
            "system__name",
            "system__slug",
            "has_page",
            "system__team__name",
            "system__team__slug",
            "system__participant",
            "system__anonymous_until",
            "tag",
            "run_type",
            "late",
            "created_at",
            "submission_reference",
        )
    )
    return [
        AwaitingRun(
            system=row["system__name"],
            system_slug=row["system__slug"] if row["has_page"] else None,
            team=row["system__participant"] or row["system__team__name"] or "",
            team_slug=None if row["system__participant"] else row["system__team__slug"],
            tag=row["tag"],
            run_type=row["run_type"],
            late=row["late"],
            date=f"{row['created_at']:%Y-%m-%d}",
            submission=row["submission_reference"],
        )
        for row in (public_columns(row, "system__") for row in rows)
    ]


_NO_RESULTS = (
    "BM25 retrieves no documents for any query of this collection, so its scores are 0 and relative differences from "
    "it are not available."
)


def _has_empty_bm25(qrels: str) -> Exists:
    """Return the condition that the public BM25 result on the judgments in the field `qrels` has an empty run."""
    return Exists(
        Entry.objects.filter(
            evaluation__qrels=OuterRef(qrels),
            evaluation__run__lines=0,
            system__slug=BM25.slug,
            visibility="public",
        )
    )


#: Condition for a query of datasets.
BM25_FINDS_NOTHING = _has_empty_bm25("current_qrels")


def remarks(*, finds_nothing: bool, statistics: Mapping[str, Any] | None, hidden: bool) -> list[str]:
    """Return the public remarks on a collection as sentences.

    `finds_nothing` tells that BM25 retrieves no documents. `statistics` are those of the judgments; documents that are
    judged but missing are only reported if the judgments are not hidden.
    """
    return [_NO_RESULTS] * finds_nothing + ([] if hidden or not statistics else missing_documents(statistics))


def qrels_remarks(qrels: int | None, *, hidden: bool) -> list[str]:
    """Return the remarks on a collection with these judgments, current or past. One database query.

    There are none if `qrels` is None.
    """
    rows = Qrels.objects.filter(pk__in=[qrels] if qrels else []).values_list("statistics", _has_empty_bm25("pk"))
    return [
        text
        for statistics, has_empty_bm25 in rows
        for text in remarks(finds_nothing=has_empty_bm25, statistics=statistics, hidden=hidden)
    ]
