"""Downloadable files of datasets and their access rules; the only writer of `DatasetFile`.

Hidden judgments are never stored as a `DatasetFile`. Even if such a row existed, `offered_files` would omit it.
"""

import io
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from django.contrib.auth.models import AnonymousUser
from isal import igzip

from evaluation.collections.beir import BYTE_ORDER_MARK, COMPRESSION_LEVEL, open_expanded, write_blocks
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import read_grades
from leaderboard.core.permissions import PendingAgreement, may_read_judgements, may_see, pending_agreements
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.models import Dataset, DatasetFile, DatasetVersion, User, Visibility

Kind = DatasetFile.Kind

_DESCRIPTIONS = {
    Kind.QUERIES: "The evaluated queries, one JSON object per line",
    Kind.ALL_QUERIES: "All queries, including train and dev",
    Kind.CORPUS: "The corpus, one JSON object per line",
    Kind.DOCUMENT_IDS: "The ids of all documents, one per line",
    Kind.CANDIDATES: "The candidates of each query, as a run in arbitrary order, for re-ranking",
    Kind.EXCLUDED: "Documents excluded from the rankings of single queries, one pair per line",
    Kind.EXAMPLE_RUN: "The baseline's run, in TREC format",
    Kind.BROKEN_RUN: "A run with errors, to try out the error messages",
    Kind.EXAMPLE_MODEL: "A checkpoint that is ready to upload",
    Kind.REFUSED_MODEL: "A checkpoint with pickled weights, to try out the rejection",
}

#: Prefixes of splits that are public although the scored judgments are hidden. Other splits may contain hidden
#: judgments.
_OPEN_SPLITS = ("train", "dev", "valid")

QUERIES_NAME, ALL_QUERIES_NAME = "queries.jsonl.gz", "queries.all.jsonl.gz"
EXCLUDED_NAME = "excluded.tsv.gz"


class StoredFile(NamedTuple):
    """A stored file: SHA-256 checksum and size in bytes."""

    sha256: str
    size: int


def store_file(path: Path) -> StoredFile:
    """Copy the file into the store. This takes as long as reading it, so do not call it inside a transaction."""
    return stored_file(put(Area.FILES, path))


def store_judgements(path: Path, work: Path) -> StoredFile:
    """Store qrels in the offered format: BEIR's columns with a header, sorted by ids, compressed with gzip.

    `path` may be in TREC or BEIR format, compressed or not. `work` is a folder for temporary files. Raises
    InvalidContent for other formats.
    """
    plain_path = work / "offered-judgements.tsv"
    write_judgements(read_grades(path), plain_path)
    return store_file(gzipped(plain_path, work / "offered-judgements.gz"))


def stored_file(sha256: str) -> StoredFile:
    return StoredFile(sha256, local_path(Area.FILES, sha256).stat().st_size)


def offer_file(
    version: DatasetVersion, kind: DatasetFile.Kind, file: StoredFile, name: str, description: str = ""
) -> DatasetFile:
    """Offer a stored file for download under `name`, replacing another one, and return its row.

    Offering the same bytes again changes nothing. By default, the description is that of the file's kind.
    """
    values = {
        "kind": kind,
        "description": description or _DESCRIPTIONS.get(kind, ""),
        "sha256": file.sha256,
        "size": file.size,
    }
    # `update_or_create` would lock the row, but the retriever's database user may only insert files.
    row, is_new = DatasetFile.objects.get_or_create(version=version, name=name, defaults=values)
    if not is_new and any(getattr(row, field) != value for field, value in values.items()):
        for field, value in values.items():
            setattr(row, field, value)
        row.save(update_fields=list(values))
    return row


def withdraw_file(version: DatasetVersion, name: str) -> None:
    DatasetFile.objects.filter(version=version, name=name).delete()


def judgements_name(split: str) -> str:
    return f"qrels.{split}.tsv.gz"


def may_offer_judgements(split: str, *, scored_split: str, hidden: bool) -> bool:
    """Return whether the qrels of `split` are public in a dataset that is scored on `scored_split`.

    If the judgments are hidden, only other splits named train…, dev…, or valid… are public.
    """
    return not hidden or (split != scored_split and split.startswith(_OPEN_SPLITS))


def offered_files(dataset: Dataset, user: User | AnonymousUser) -> list[DatasetFile]:
    """Return the files that the user may download, or none while an agreement is pending."""
    return [] if blocking_agreements(dataset, user) else visible_files(dataset, user)


def visible_files(dataset: Dataset, user: User | AnonymousUser) -> list[DatasetFile]:
    """Return the current version's files that the user may download once no agreement is pending.

    They are sorted by kind and name.
    """
    if dataset.current_version is None:
        return []
    order = list(Kind.values)
    queries = may_see(user, dataset, dataset.queries_visibility)
    documents = may_see(user, dataset, dataset.documents_visibility)
    files = [
        file
        for file in dataset.current_version.files.all()
        if _may_download(dataset, file, user, queries=queries, documents=documents)
    ]
    return sorted(files, key=lambda file: (order.index(file.kind), file.name))


def blocking_agreements(dataset: Dataset, user: User | AnonymousUser) -> list[PendingAgreement]:
    """Return the dataset's agreement if the user has to accept it before any download."""
    return pending_agreements(user, datasets=[dataset.pk])


def find_file(dataset: Dataset, user: User | AnonymousUser, name: str) -> DatasetFile | None:
    """Return the file with this name if the user may download it, or None."""
    return next((file for file in offered_files(dataset, user) if file.name == name), None)


def _may_download(
    dataset: Dataset, file: DatasetFile, user: User | AnonymousUser, *, queries: bool, documents: bool
) -> bool:
    """Return whether the user may download a file; `queries` and `documents` are whether they may see these texts.

    Judgments must be public, and sealed queries require the permission to read hidden judgments.
    """
    if file.kind == Kind.QRELS:
        scored_split = dataset.current_qrels.split if dataset.current_qrels else "test"
        split = file.name.removeprefix("qrels.").removesuffix(".tsv.gz")
        return may_offer_judgements(split, scored_split=scored_split, hidden=dataset.hidden)
    if file.kind in (Kind.CORPUS, Kind.EXAMPLE_MODEL, Kind.REFUSED_MODEL):
        return documents  # Models contain the vocabulary of the corpus.
    if is_sealed(dataset, file):
        return may_read_judgements(user)
    if file.kind in (Kind.QUERIES, Kind.ALL_QUERIES, Kind.EXCLUDED, Kind.EXAMPLE_RUN, Kind.BROKEN_RUN):
        return queries
    return True  # Document ids contain no text.


def is_sealed(dataset: Dataset, file: DatasetFile) -> bool:
    """Return whether the file contains sealed queries, so that reading it is restricted and audited."""
    return file.kind in (Kind.QUERIES, Kind.ALL_QUERIES, Kind.EXCLUDED) and seals_queries(dataset)


def seals_queries(dataset: Dataset) -> bool:
    """Return whether the dataset's query texts are protected like hidden judgments."""
    return are_sealed(dataset.hidden, dataset.queries_visibility)


def are_sealed(hidden: bool, queries_visibility: str) -> bool:
    """Return whether queries are sealed, from the columns of a dataset."""
    return hidden and queries_visibility == Visibility.CURATORS


def without_checksums(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version's statistics without checksums, for datasets with sealed queries.

    A checksum would allow anyone to test whether a guess equals the file.
    """
    return {name: value for name, value in statistics.items() if not name.endswith("_sha256")}


def gzipped(source: Path, target: Path) -> Path:
    """Write the file's content to `target` as reproducible gzip, without name, time, or byte order mark."""
    with (
        _read_expanded(source) as reader,
        target.open("wb") as file,
        igzip.IGzipFile(filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=file, mtime=0) as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)
    return target


def in_blocks(corpus: Path, target: Path) -> Path:
    """Write a corpus like `gzipped`, in blocks that can be read independently."""
    with _read_expanded(corpus) as reader:
        write_blocks(reader, target)
    return target


@contextmanager
def _read_expanded(source: Path) -> Iterator[BinaryIO]:
    """Yield the file's content, decompressed if necessary, without its byte order mark."""
    with open_expanded(source) as (_, stream):
        if cast(io.BufferedReader, stream).peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
            stream.read(len(BYTE_ORDER_MARK))
        yield stream
