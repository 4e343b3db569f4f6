"""Scoring targets, rows of relevance judgments, and the only functions that open judgments.

Only the scorer requests hidden judgments. Intake never reads judgments, and pages read only open ones, through
`open_judgements`. A user gets them through `recorded_qrels_path`, which records the access before the first byte.
Comparisons call `leaderboard.judgements.disclosure.load_compared`, which checks the permission and records the access.
`tests/structure/test_judgements.py` lists all callers of the functions here that return hidden judgments.

Content is immutable and addressed by checksum, so each process caches it: a warm worker reads a dataset's judgments,
topics, and document ids once.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from django.conf import settings
from django.db.models import Max

from evaluation.archives.compression import open_blocks
from evaluation.collections.beir import read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.judgements import qrels as judged
from evaluation.judgements.answers import Answers, read_answers
from evaluation.judgements.labels import LABEL_MEASURES, Labels, label_measure, read_labels
from evaluation.judgements.qrels import read_excluded
from evaluation.judgements.splits import QueryParts, read_parts, write_parts
from evaluation.judgements.subtopics import read_subtopics
from evaluation.runs.score import ScoringTarget
from evaluation.verification.comparing import Judgements as VerifyingJudgements
from evaluation.verification.comparing import ScoringRules, parse_excluded
from evaluation.verification.references import AnswerTexts, read_records
from leaderboard.core.audit import record
from leaderboard.core.permissions import has_agreement
from leaderboard.core.storage import shared
from leaderboard.core.storage.store import Area, local_path, path_of, put
from leaderboard.datasets.problems import MISSING_DOCUMENTS, MISSING_RELEVANT
from leaderboard.models import CollectionProfile, Dataset, DatasetVersion, Qrels, Visibility

T = TypeVar("T")

#: Audit action for access to judgments.
READ = "read judgements"
#: Maximum number of cached datasets. The largest judgments of BEIR take about 100 MB, most others a few MB.
_CACHE_SIZE = 16
#: Number of judged documents per lookup in the corpus.
_LOOKUP_BATCH = 100_000
#: Maximum number of cached datasets for verification, which takes about 200 bytes per judgment.
_VERIFICATION_CACHE_SIZE = 4


def _cached_reader(
    read: Callable[[Path], T],
    area: Area,
    locate: Callable[[Area, str], Path] = path_of,
    size: int = _CACHE_SIZE,
) -> Callable[[str], T]:
    """Return a function that reads the stored file with a checksum, cached for the `size` latest files.

    `locate` returns the path of a file in an area.
    """
    return lru_cache(maxsize=size)(lambda sha256: read(locate(area, sha256)))


_judgements = _cached_reader(judged.read_qrels, Area.QRELS)
_open_judgements = _cached_reader(judged.read_qrels, Area.OPEN_QRELS, local_path)
_open_answers = _cached_reader(partial(read_answers, try_patterns=False), Area.OPEN_QRELS, local_path)
_open_labels = _cached_reader(read_labels, Area.OPEN_QRELS, local_path, _VERIFICATION_CACHE_SIZE)
_parts = _cached_reader(read_parts, Area.QRELS)
_answers = _cached_reader(partial(read_answers, try_patterns=False), Area.QRELS)
_subtopics = _cached_reader(read_subtopics, Area.QRELS)
_labels = _cached_reader(read_labels, Area.QRELS, size=_VERIFICATION_CACHE_SIZE)
_label_records = _cached_reader(lambda path: read_records(path.read_bytes()), Area.QRELS, size=_VERIFICATION_CACHE_SIZE)
_excluded = _cached_reader(read_excluded, Area.FILES, local_path)
_document_ids = _cached_reader(DocumentIds.open, Area.INDEXES, local_path)
#: Returns the query ids in a stored file.
topic_ids = _cached_reader(lambda path: frozenset(query.id for query in read_queries(path)), Area.FILES, local_path)
#: Returns the texts of the queries in a stored file, by id.
topic_texts = _cached_reader(
    lambda path: {query.id: query.text for query in read_queries(path)}, Area.FILES, local_path
)
_parsed_excluded = _cached_reader(
    lambda path: parse_excluded(b"".join(open_blocks(path))), Area.FILES, local_path, _VERIFICATION_CACHE_SIZE
)


def load_qrels(row: Qrels) -> judged.Qrels:
    """Return the judgments of a row from private storage."""
    return _judgements(row.sha256)


def load_grades(row: Qrels) -> dict[bytes, dict[bytes, int]]:
    """Return the grades of a row by query and document, including negative ones."""
    return judged.read_grades(path_of(Area.QRELS, row.sha256))


def load_labels(row: Qrels | None) -> Labels:
    """Return the labels of answers of a row from private storage; empty if there are none."""
    return _labels(row.labels_sha256) if row is not None and row.labels_sha256 else {}


def label_records(row: Qrels) -> list[dict[str, Any]]:
    """Return the labels of a row, read independently of `load_labels` to verify scores."""
    return _label_records(row.labels_sha256) if row.labels_sha256 else []


def label_measures(row: Qrels) -> list[str]:
    """Return the measures of all judges of answers."""
    judges = row.judged_by.get("labels", {}).get("judges", ())
    return [label_measure(measure, judge["name"]) for judge in judges for measure in LABEL_MEASURES]


def load_parts(row: Qrels) -> QueryParts:
    """Return a competition's parts from private storage. Raises ValueError if none were drawn."""
    if not row.parts_sha256:
        raise ValueError(f"no parts were drawn for {row}")
    return _parts(row.parts_sha256)


def store_parts(row: Qrels, parts: QueryParts) -> None:
    """Store parts in private storage, and save the row with their checksum."""
    with tempfile.TemporaryDirectory(prefix="runboard-") as folder:
        path = Path(folder) / "parts"
        write_parts(parts, path)
        row.parts_sha256 = put(Area.QRELS, path)
    row.save(update_fields=["parts_sha256"])


class JudgementsNotOpen(Exception):
    """The dataset's judgments are not public, or do not exist."""


class JudgementsNotCopied(Exception):
    """Open judgments are not available yet to a process without private storage."""


def open_judgements(dataset: Dataset) -> judged.Qrels:
    """Return the dataset's current judgments for public pages.

    Raises:
        JudgementsNotOpen: If the judgments are hidden, not published, or not copied yet, or if the dataset has an
            agreement. Judgments under an agreement can only be downloaded.
    """
    qrels = dataset.current_qrels
    is_published = dataset.state == Dataset.State.PUBLISHED
    if dataset.hidden or not is_published or qrels is None or qrels.version_id != dataset.current_version_id:
        raise JudgementsNotOpen(dataset.slug)
    if has_agreement(dataset):
        raise JudgementsNotOpen(dataset.slug)
    try:
        return _load_open(qrels.sha256, _judgements, _open_judgements)
    except JudgementsNotCopied as error:  # the scorer copies them within seconds
        raise JudgementsNotOpen(dataset.slug) from error


def load_open_qrels(row: Qrels) -> judged.Qrels:
    """Return open judgments for a process that may lack private storage.

    Raises:
        JudgementsNotOpen: For hidden judgments.
        JudgementsNotCopied: Without private storage, until they are copied.
    """
    _require_open(row)
    return _load_open(row.sha256, _judgements, _open_judgements)


def open_answers(dataset: Dataset, query_id: str) -> tuple[Sequence[str], Labels]:
    """Return a query's correct answers or their patterns, and all labels, of the current judgments, which must be open.

    They are empty if there are none, or if they are not copied yet.

    Raises the same exception as `open_judgements`.
    """
    open_judgements(dataset)
    row, answers, labels = dataset.current_qrels or Qrels(), Answers(), Labels()
    with suppress(JudgementsNotCopied):
        if row.answers_sha256:
            answers = _load_open(row.answers_sha256, _answers, _open_answers).get(query_id, answers)
        if row.labels_sha256:
            labels = _load_open(row.labels_sha256, _labels, _open_labels)
    return answers.texts or [pattern.pattern for pattern in answers.patterns], labels


def open_qrels_path(row: Qrels) -> Path:
    """Return the file of open judgments. Raises JudgementsNotOpen for hidden ones."""
    _require_open(row)
    return path_of(Area.QRELS, row.sha256)


def _require_open(row: Qrels) -> None:
    if row.version.dataset.hidden:
        raise JudgementsNotOpen(row.version.dataset.slug)


def _load_open(sha256: str, read_private: Callable[[str], T], read_copy: Callable[[str], T]) -> T:
    """Return open judgments, answers, or labels by checksum, from private storage or else from the copies.

    Raises JudgementsNotCopied if a process without private storage finds no copy.
    """
    if settings.PRIVATE_STORAGE:
        return read_private(sha256)
    try:
        return read_copy(sha256)
    except FileNotFoundError as error:
        raise JudgementsNotCopied(sha256) from error


def copy_open_judgements() -> int:
    """Copy open judgments of published datasets for processes without private storage, and return the number of files.

    They include correct answers and labels. Copies that are no longer open or current are removed.

    Raises:
        FileNotFoundError: For judgments that are missing in private storage, after all others were copied.
    """
    open_datasets = Dataset.objects.filter(state=Dataset.State.PUBLISHED, hidden=False).exclude(current_qrels=None)
    names = ("sha256", "answers_sha256", "labels_sha256")
    rows = open_datasets.values_list(*(f"current_qrels__{name}" for name in names))
    checksums = set(filter(None, chain.from_iterable(rows)))
    missing_checksums = []
    for sha256 in checksums:
        if path_of(Area.OPEN_QRELS, sha256).exists():
            continue
        try:
            put(Area.OPEN_QRELS, path_of(Area.QRELS, sha256), sha256)
        except FileNotFoundError:
            missing_checksums.append(sha256)
    for path in (Path(settings.VAR) / Area.OPEN_QRELS.value).glob("*/*"):
        if path.name not in checksums and not path.name.startswith(".partial-"):
            path.unlink(missing_ok=True)
            shared.remove(path)
    if missing_checksums:
        raise FileNotFoundError(f"judgments missing from private storage: {', '.join(sorted(missing_checksums))}")
    return len(checksums)


def verifying_judgements(row: Qrels) -> VerifyingJudgements:
    """Return the judgments of a row, read independently of `load_qrels` to verify scores."""
    return _verifying_judgements(row.sha256, row.subtopics_sha256)


@lru_cache(maxsize=_VERIFICATION_CACHE_SIZE)
def _verifying_judgements(*checksums: str) -> VerifyingJudgements:
    return VerifyingJudgements(*(b"".join(open_blocks(path_of(Area.QRELS, each))) for each in checksums if each))


def scoring_rules(version: DatasetVersion) -> ScoringRules:
    """Return the scoring rules of a version, with its excluded documents read independently."""
    dataset, excluded_sha256 = version.dataset, version.excluded_sha256
    return ScoringRules(
        dataset.relevance_level,
        dataset.drop_self_matches,
        candidates_only=dataset.candidates_only,
        excluded=_parsed_excluded(excluded_sha256) if excluded_sha256 else {},
    )


def excluded_documents(version: DatasetVersion) -> judged.Qrels | None:
    """Return the documents excluded from rankings by query, or None if there are none."""
    return _excluded(version.excluded_sha256) if version.excluded_sha256 else None


def excluded_path(version: DatasetVersion) -> Path | None:
    return local_path(Area.FILES, version.excluded_sha256) if version.excluded_sha256 else None


def scoring_target(version: DatasetVersion, *, qrels: Qrels | None = None) -> ScoringTarget:
    """Return the target for checking runs of this version, and if `qrels` is given, also for scoring them."""
    dataset = version.dataset
    shows_documents = dataset.documents_visibility == Visibility.PUBLIC and not (dataset.hidden or dataset.runs_only)
    profiles = CollectionProfile.objects.filter(version=version, example__has_key="document")
    examples = profiles.values_list("example__document__id", flat=True) if shows_documents else ()
    base_target = ScoringTarget(
        hidden=dataset.hidden,
        names_queries=dataset.queries_visibility == Visibility.PUBLIC,
        example_document=next(iter(examples), ""),
        relevance_level=dataset.relevance_level,
        drop_self_matches=dataset.drop_self_matches,
        candidates_only=dataset.candidates_only,
        measures=tuple(dataset.measures or [dataset.primary_measure]),
    )
    names = ("sha256", "answers_sha256", "subtopics_sha256", "labels_sha256")
    qrels_checksums = [getattr(qrels, name) if qrels else "" for name in names]
    checksums = version.topics_sha256, version.document_ids_sha256, version.excluded_sha256, version.corpus_sha256
    return _target(base_target, (*checksums, *qrels_checksums))


def answer_texts(row: Qrels) -> AnswerTexts | None:
    """Return the answers and texts for verifying scores, read independently; None without answers."""
    if not row.answers_sha256:
        return None
    corpus = local_path(Area.FILES, row.version.corpus_sha256) if row.version.corpus_sha256 else None
    return AnswerTexts(path_of(Area.QRELS, row.answers_sha256), corpus)


@lru_cache(maxsize=_CACHE_SIZE)
def _target(base_target: ScoringTarget, checksums: tuple[str, ...]) -> ScoringTarget:
    """Return the target for content with these checksums; cached, because it contains lookup tables."""
    topics, document_ids, excluded, corpus, qrels, answers, subtopics, labels = checksums
    return replace(
        base_target,
        qrels=_judgements(qrels) if qrels else None,
        query_ids=topic_ids(topics),
        document_ids=_document_ids(document_ids) if document_ids else None,
        excluded=_excluded(excluded) if excluded else None,
        answers=_answers(answers) if answers else None,
        labels=_labels(labels) if labels else None,
        corpus=local_path(Area.FILES, corpus) if answers and corpus else None,
        subtopics=_subtopics(subtopics) if subtopics else None,
    )


def private_paths(*checksums: str) -> list[Path]:
    """Return the paths of batch files in private storage.

    Callers are the scorer and curators who may read hidden judgments.
    """
    return [path_of(Area.QRELS, sha256) for sha256 in checksums]


def recorded_qrels_path(qrels: Qrels) -> Path:
    """Return the file of these judgments after recording the access. Call this within `leaderboard.core.audit.acting`.

    The caller must have checked the permission `leaderboard.read_qrels`. The record is committed before the file is
    read, so do not call this within a transaction that could roll it back.
    """
    path = path_of(Area.QRELS, qrels.sha256)
    record_reading(qrels, qrels.version.dataset_id, qrels=qrels.pk)
    return path


def record_reading(subject: object, dataset: int, **details: Any) -> None:
    """Add an audit record of access to judgments, or to data that reveals them. Call this within `audit.acting`."""
    record(READ, subject, dataset=dataset, after=details)


@dataclass(frozen=True, slots=True)
class JudgementFile:
    """The qrels of one split, as arrays and as a plain file.

    `missing` are judged documents that are not in the corpus.
    """

    qrels: judged.Qrels
    path: Path
    sha256: str
    missing: frozenset[str] = frozenset()

    def statistics(self, relevance_level: int) -> dict[str, Any]:
        """Return statistics of the judgments for the dataset's page; grades from `relevance_level` are relevant.

        They include judged documents that are not in the corpus.
        """
        grades, counts = np.unique(self.qrels.grades, return_counts=True)
        relevant_counts = np.bincount(
            self.qrels.rows[self.qrels.grades >= relevance_level], minlength=len(self.qrels.query_ids)
        )
        return {
            "judged_queries": len(self.qrels.query_ids),
            "judgements": self.qrels.number_of_judgements,
            "relevant": int(relevant_counts.sum()),
            "relevant_per_query": float(relevant_counts.mean()) if len(relevant_counts) else 0.0,
            "queries_without_relevant": int((relevant_counts == 0).sum()),
            "grades": {str(grade): int(count) for grade, count in zip(grades, counts, strict=True)},
            "relevance_levels": len({0, *grades.tolist()}),
            "negative_grades": self.qrels.negative_count,
            **self._missing_counts(relevance_level),
        }

    def _missing_counts(self, relevance_level: int) -> dict[str, int]:
        """Return the numbers of judged and of relevant documents missing from the corpus; empty if none are missing."""
        if not self.missing:
            return {}
        judgements = self.qrels.judgements()
        relevant_documents = {document for _, document, grade in judgements if grade >= relevance_level} & self.missing
        return {MISSING_DOCUMENTS: len(self.missing), MISSING_RELEVANT: len(relevant_documents)}


def documents_not_in_corpus(qrels: judged.Qrels, documents: DocumentIds) -> list[str]:
    """Return the distinct judged documents that are not in the corpus, in order of the judgments."""
    missing_documents: dict[str, None] = {}
    names = (document for _, document, _ in qrels.judgements())
    while batch := list(islice(names, _LOOKUP_BATCH)):
        contained_flags = documents.contain(batch).tolist()
        missing_documents |= dict.fromkeys(
            document for document, is_contained in zip(batch, contained_flags, strict=True) if not is_contained
        )
    return list(missing_documents)


def current_or_next_qrels(
    version: DatasetVersion,
    split: str,
    judgements: JudgementFile | Qrels,
    *,
    files: Mapping[str, str] = {},
    made_from: Qrels | None = None,
    note: str = "",
    judged_by: Mapping[str, Any] | None = None,
) -> Qrels:
    """Return the row of these judgments, creating it with the next number if they are new.

    `note` describes additions to `made_from`. `files` are `answers_sha256`, `subtopics_sha256`, and `labels_sha256`.
    Without the first two, the row has the answers and subtopics of an existing row or of `made_from`. Without
    `labels_sha256`, it has the labels of `made_from`, by default the dataset's current qrels if the queries are equal.
    """
    if made_from is not None:
        files = {name: getattr(made_from, name) for name in ("answers_sha256", "subtopics_sha256")} | dict(files)
    source = made_from or version.dataset.current_qrels
    has_labels = source is not None and source.labels_sha256 and source.version.queries_sha256 == version.queries_sha256
    if source is not None and has_labels and not files.get("labels_sha256"):
        files = {**files, "labels_sha256": source.labels_sha256}
        judged_by = {**(judged_by or {}), "labels": source.judged_by["labels"]}
    file_columns = {"labels_sha256": ""} | {name: sha256 for name, sha256 in files.items() if sha256}
    rows = version.qrels.filter(split=split, sha256=judgements.sha256, **file_columns)
    row = rows.order_by("-number").first()
    if row is not None:
        return row
    latest_number = version.qrels.filter(split=split).aggregate(latest=Max("number"))["latest"] or 0
    level = version.dataset.relevance_level
    return Qrels.objects.create(
        version=version,
        split=split,
        number=latest_number + 1,
        sha256=judgements.sha256,
        **files,
        statistics=judgements.statistics if isinstance(judgements, Qrels) else judgements.statistics(level),
        made_from=made_from,
        note=note,
        judged_by=judged_by or {},
    )
