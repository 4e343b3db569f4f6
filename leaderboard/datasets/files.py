"""The files that datasets offer: the only writer of `DatasetFile`, and who may have which.

Judgements that are hidden never become a `DatasetFile`. Should a row come to be all the same, `offered_files` still
leaves it out.
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
from leaderboard.core.permissions import (
    PendingAgreement,
    may_read_judgements,
    pending_agreements,
    sees,
)
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.models import Dataset, DatasetFile, DatasetVersion, User, Visibility

Kind = DatasetFile.Kind

_DESCRIPTIONS = {
    Kind.QUERIES: "The queries that a run answers, one JSON object per line",
    Kind.ALL_QUERIES: "All queries, with those of train and dev",
    Kind.CORPUS: "The documents, one JSON object per line",
    Kind.DOCUMENT_IDS: "The ids of all documents, one per line",
    Kind.CANDIDATES: "The candidates of each query as a run to re-rank, in arbitrary order",
    Kind.EXCLUDED: "The documents that are left out of the rankings of single queries, one pair per line",
    Kind.EXAMPLE_RUN: "The baseline's run, in TREC format",
    Kind.BROKEN_RUN: "A run with mistakes, to see how they are reported",
    Kind.EXAMPLE_MODEL: "A checkpoint to upload as it is",
    Kind.REFUSED_MODEL: "A checkpoint with pickled weights, to see how it is refused",
}

#: How the names of splits begin that everyone may have beside hidden judgements. Under any other name may be anything.
_OPEN_SPLITS = ("train", "dev", "valid")

QUERIES_NAME, ALL_QUERIES_NAME = "queries.jsonl.gz", "queries.all.jsonl.gz"
EXCLUDED_NAME = "excluded.tsv.gz"


class StoredFile(NamedTuple):
    """A file in the store: the sha256 of its bytes, and how many there are."""

    sha256: str
    size: int


def store_file(path: Path) -> StoredFile:
    """Put a copy of the file into the store. It takes as long as reading it, so not inside a transaction."""
    return stored_file(put(Area.FILES, path))


def store_judgements(path: Path, work: Path) -> StoredFile:
    """Put judgements into the store as they are offered: BEIR's columns under their header, gzip, in order of the ids.

    `path` may be TREC's or BEIR's, compressed or not. `work` is a folder for what is written on the way.
    Raises InvalidContent for a file that is neither.
    """
    plain = work / "offered-judgements.tsv"
    write_judgements(read_grades(path), plain)
    return store_file(gzipped(plain, work / "offered-judgements.gz"))


def stored_file(sha256: str) -> StoredFile:
    """Return a file that is in the store already."""
    return StoredFile(sha256, local_path(Area.FILES, sha256).stat().st_size)


def offer_file(
    version: DatasetVersion, kind: DatasetFile.Kind, kept: StoredFile, name: str, description: str = ""
) -> DatasetFile:
    """Offer a file of the store for download under `name`. The same bytes again change nothing."""
    values = {
        "kind": kind,
        "description": description or _DESCRIPTIONS.get(kind, ""),
        "sha256": kept.sha256,
        "size": kept.size,
    }
    # Not `update_or_create`, which holds the row first: retrievers may add files and change none.
    row, is_new = DatasetFile.objects.get_or_create(version=version, name=name, defaults=values)
    if not is_new and any(getattr(row, field) != value for field, value in values.items()):
        for field, value in values.items():
            setattr(row, field, value)
        row.save(update_fields=list(values))
    return row


def withdraw_file(version: DatasetVersion, name: str) -> None:
    """Offer the file no longer."""
    DatasetFile.objects.filter(version=version, name=name).delete()


def judgements_name(split: str) -> str:
    """Return the name under which the judgements of a split are offered."""
    return f"qrels.{split}.tsv.gz"


def may_offer_judgements(split: str, *, scored: str, hidden: bool) -> bool:
    """Whether everyone may have the judgements of `split`, in a dataset that is scored on those of `scored`."""
    return not hidden or (split != scored and split.startswith(_OPEN_SPLITS))


def offered_files(dataset: Dataset, user: User | AnonymousUser) -> list[DatasetFile]:
    """What this visitor may download of the dataset's current version, in the order of kinds."""
    return [] if keeping_out(dataset, user) else visible_files(dataset, user)


def visible_files(dataset: Dataset, user: User | AnonymousUser) -> list[DatasetFile]:
    """Return the files that are offered to this visitor if no agreement is due (`keeping_out`)."""
    if dataset.current_version is None:
        return []
    order = list(Kind.values)
    queries = sees(user, dataset, dataset.queries_visibility)
    documents = sees(user, dataset, dataset.documents_visibility)
    files = [
        file
        for file in dataset.current_version.files.all()
        if _may_download(dataset, file, user, queries=queries, documents=documents)
    ]
    return sorted(files, key=lambda file: (order.index(file.kind), file.name))


def keeping_out(dataset: Dataset, user: User | AnonymousUser) -> list[PendingAgreement]:
    """Return the dataset's agreement, while it keeps this visitor from all of its files."""
    return pending_agreements(user, datasets=[dataset.pk])


def find_file(dataset: Dataset, user: User | AnonymousUser, name: str) -> DatasetFile | None:
    """Return the file of this name, if the visitor may have it."""
    return next((file for file in offered_files(dataset, user) if file.name == name), None)


def _may_download(
    dataset: Dataset, file: DatasetFile, user: User | AnonymousUser, *, queries: bool, documents: bool
) -> bool:
    """`queries`, `documents`: whether the visitor may see their texts."""
    if file.kind == Kind.QRELS:
        scored = dataset.current_qrels.split if dataset.current_qrels else "test"
        split = file.name.removeprefix("qrels.").removesuffix(".tsv.gz")
        return may_offer_judgements(split, scored=scored, hidden=dataset.hidden)
    if file.kind in (Kind.CORPUS, Kind.EXAMPLE_MODEL, Kind.REFUSED_MODEL):  # a vocabulary is the documents'
        return documents
    if is_sealed(dataset, file):
        return may_read_judgements(user)
    if file.kind in (Kind.QUERIES, Kind.ALL_QUERIES, Kind.EXCLUDED, Kind.EXAMPLE_RUN, Kind.BROKEN_RUN):
        return queries
    return True  # document ids carry no text


def is_sealed(dataset: Dataset, file: DatasetFile) -> bool:
    """Whether the file tells of queries that are kept as judgements are: reading it takes that right, recorded."""
    return file.kind in (Kind.QUERIES, Kind.ALL_QUERIES, Kind.EXCLUDED) and seals_queries(dataset)


def seals_queries(dataset: Dataset) -> bool:
    """Whether the queries' texts are kept as hidden judgements are."""
    return are_sealed(dataset.hidden, dataset.queries_visibility)


def are_sealed(hidden: bool, queries_visibility: str) -> bool:
    """Return whether queries are sealed, from the columns of a dataset."""
    return hidden and queries_visibility == Visibility.CURATORS


def without_checksums(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """A version's statistics without checksums, for where its queries are sealed: whoever has a checksum can try out
    whether a guess is the file.
    """
    return {name: value for name, value in statistics.items() if not name.endswith("_sha256")}


def gzipped(source: Path, target: Path) -> Path:
    """The file's content as gzip in `target`, without name, time or byte order mark: however it was sent, the same
    bytes."""
    with (
        _expanded(source) as reader,
        target.open("wb") as file,
        igzip.IGzipFile(
            filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=file, mtime=0
        ) as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)
    return target


def in_blocks(corpus: Path, target: Path) -> Path:
    """The same for a corpus, in blocks that can be read one by one."""
    with _expanded(corpus) as reader:
        write_blocks(reader, target)
    return target


@contextmanager
def _expanded(source: Path) -> Iterator[BinaryIO]:
    """Yield the file's content, expanded if it is gzip, from behind its byte order mark on."""
    with open_expanded(source) as (_, stream):
        if cast(io.BufferedReader, stream).peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
            stream.read(len(BYTE_ORDER_MARK))
        yield stream
