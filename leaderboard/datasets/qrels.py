"""Targets that runs are checked and scored against, rows of judgements, and the only functions that open judgements.

Only the scorer asks for hidden judgements. Intake never reads them, and pages get open ones alone, through
`open_judgements`. A person gets them through `recorded_qrels_path`, which records who, before the first byte; what
compares something with them calls `leaderboard.judgements.disclosure.load_compared`, which asks for the right and
records it. `tests/structure/test_judgements.py` lists the callers of every function here that returns hidden ones.

Content is immutable and named by its checksum, so each process keeps what it has read: a warm worker reads a
dataset's judgements, topics and document ids once.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from django.conf import settings
from django.db.models import Max

from evaluation.archives.compression import open_blocks
from evaluation.collections.beir import read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.judgements import qrels as judged
from evaluation.judgements.answers import read_answers
from evaluation.judgements.qrels import read_excluded
from evaluation.judgements.splits import QueryParts, read_parts, write_parts
from evaluation.runs.score import ScoringTarget
from evaluation.verification.comparing import Judgements as VerifyingJudgements
from evaluation.verification.comparing import ScoringRules, parse_excluded
from evaluation.verification.references import AnswerTexts
from leaderboard.core.audit import record
from leaderboard.core.permissions import has_agreement
from leaderboard.core.storage import shared
from leaderboard.core.storage.store import Area, local_path, path_of, put
from leaderboard.datasets.problems import MISSING_DOCUMENTS, MISSING_RELEVANT
from leaderboard.models import Dataset, DatasetVersion, Qrels, Visibility

T = TypeVar("T")

#: What the record calls a reading of judgements.
READ = "read judgements"
#: Datasets kept at once. The largest of BEIR's judgements take about 100 MB, most a few.
_KEPT = 16
#: Number of judged documents that are looked up in the corpus at a time.
_LOOKED_UP_AT_ONCE = 100_000
#: The same for verifying, where a judgement takes some 200 bytes.
_KEPT_FOR_VERIFYING = 4


def _kept(
    read: Callable[[Path], T], area: Area, locate: Callable[[Area, str], Path] = path_of, most: int = _KEPT
) -> Callable[[str], T]:
    """Return a reader of stored files by their checksums, which keeps what it has read last."""
    return lru_cache(maxsize=most)(lambda sha256: read(locate(area, sha256)))


_judgements = _kept(judged.read_qrels, Area.QRELS)
_open_judgements = _kept(judged.read_qrels, Area.OPEN_QRELS, local_path)
_parts = _kept(read_parts, Area.QRELS)
_answers = _kept(partial(read_answers, try_patterns=False), Area.QRELS)
_excluded = _kept(read_excluded, Area.FILES, local_path)
_document_ids = _kept(DocumentIds.open, Area.INDEXES, local_path)
#: The ids of the queries in a stored file.
topic_ids = _kept(lambda path: frozenset(query.id for query in read_queries(path)), Area.FILES, local_path)
_verifying_judgements = _kept(
    lambda path: VerifyingJudgements(b"".join(open_blocks(path))), Area.QRELS, most=_KEPT_FOR_VERIFYING
)
_parsed_excluded = _kept(
    lambda path: parse_excluded(b"".join(open_blocks(path))), Area.FILES, local_path, _KEPT_FOR_VERIFYING
)


def load_qrels(row: Qrels) -> judged.Qrels:
    """Return the judgements of a row, from private storage."""
    return _judgements(row.sha256)


def load_grades(row: Qrels) -> dict[bytes, dict[bytes, int]]:
    """Return the grades of a row by query and document, negative ones included."""
    return judged.read_grades(path_of(Area.QRELS, row.sha256))


def load_parts(row: Qrels) -> QueryParts:
    """Return a competition's parts, from private storage. Raises ValueError where none were drawn."""
    if not row.parts_sha256:
        raise ValueError(f"no parts were drawn for {row}")
    return _parts(row.parts_sha256)


def store_parts(row: Qrels, parts: QueryParts) -> None:
    """Put parts into private storage, and name them in the row."""
    with tempfile.TemporaryDirectory(prefix="runboard-") as folder:
        path = Path(folder) / "parts"
        write_parts(parts, path)
        row.parts_sha256 = put(Area.QRELS, path)
    row.save(update_fields=["parts_sha256"])


class JudgementsNotOpen(Exception):
    """The dataset's judgements are not everyone's to see, or there are none."""


class JudgementsNotCopied(Exception):
    """Judgements that everyone may see are not yet where a process without private storage reads them."""


def open_judgements(dataset: Dataset) -> judged.Qrels:
    """Return the present judgements of a dataset, for pages. Raises JudgementsNotOpen unless everyone may see them.

    Pages are for everyone: with an agreement the judgements are downloaded by whoever accepted it.
    """
    qrels = dataset.current_qrels
    published = dataset.state == Dataset.State.PUBLISHED
    if dataset.hidden or not published or qrels is None or qrels.version_id != dataset.current_version_id:
        raise JudgementsNotOpen(dataset.slug)
    if has_agreement(dataset):
        raise JudgementsNotOpen(dataset.slug)
    try:
        return _load_open(qrels.sha256)
    except JudgementsNotCopied as error:  # the scorer lays it out within seconds
        raise JudgementsNotOpen(dataset.slug) from error


def load_open_qrels(row: Qrels) -> judged.Qrels:
    """Return judgements that are not hidden, for a process that may have no private storage.

    Raises JudgementsNotOpen for hidden ones, and JudgementsNotCopied without private storage until they are copied.
    """
    _require_open(row)
    return _load_open(row.sha256)


def open_qrels_path(row: Qrels) -> Path:
    """Return the file of judgements that are not hidden. Raises JudgementsNotOpen for hidden ones."""
    _require_open(row)
    return path_of(Area.QRELS, row.sha256)


def _require_open(row: Qrels) -> None:
    if row.version.dataset.hidden:
        raise JudgementsNotOpen(row.version.dataset.slug)


def _load_open(sha256: str) -> judged.Qrels:
    if settings.PRIVATE_STORAGE:
        return _judgements(sha256)
    try:
        return _open_judgements(sha256)
    except FileNotFoundError as error:
        raise JudgementsNotCopied(sha256) from error


def copy_open_judgements() -> int:
    """Copy judgements that are not hidden to where processes without private storage read them.

    Removes copies of what is no longer open, or no longer the present. Returns how many there are. Raises
    FileNotFoundError for judgements that are gone from private storage, when all others are laid out.
    """
    open_ones = Dataset.objects.filter(state=Dataset.State.PUBLISHED, hidden=False).exclude(
        current_qrels=None
    )
    wanted = set(open_ones.values_list("current_qrels__sha256", flat=True))
    gone = []
    for sha256 in wanted:
        if path_of(Area.OPEN_QRELS, sha256).exists():
            continue
        try:
            put(Area.OPEN_QRELS, path_of(Area.QRELS, sha256), sha256)
        except FileNotFoundError:
            gone.append(sha256)
    for path in (Path(settings.VAR) / Area.OPEN_QRELS.value).glob("*/*"):
        if path.name not in wanted and not path.name.startswith(".partial-"):
            path.unlink(missing_ok=True)
            shared.remove(path)
    if gone:
        raise FileNotFoundError(f"judgements that are not in private storage: {', '.join(sorted(gone))}")
    return len(wanted)


def verifying_judgements(row: Qrels) -> VerifyingJudgements:
    """Return the judgements of a row, read anew from their file to verify what was scored against `load_qrels`."""
    return _verifying_judgements(row.sha256)


def scoring_rules(version: DatasetVersion) -> ScoringRules:
    """How runs for this version are scored, with its excluded documents read anew from their file."""
    dataset, excluded = version.dataset, version.excluded_sha256
    return ScoringRules(
        dataset.relevance_level,
        dataset.drop_self_matches,
        candidates_only=dataset.candidates_only,
        excluded=_parsed_excluded(excluded) if excluded else {},
    )


def excluded_documents(version: DatasetVersion) -> judged.Qrels | None:
    """Return the documents that are left out of rankings for this version, by query; None where there are none."""
    return _excluded(version.excluded_sha256) if version.excluded_sha256 else None


def excluded_path(version: DatasetVersion) -> Path | None:
    """Return the file with the documents that are left out of rankings; None where there are none."""
    return local_path(Area.FILES, version.excluded_sha256) if version.excluded_sha256 else None


def scoring_target(version: DatasetVersion, *, qrels: Qrels | None = None) -> ScoringTarget:
    """Return what a run for this version is checked against; with `qrels`, also what it is scored against."""
    dataset = version.dataset
    settings_alone = ScoringTarget(
        hidden=dataset.hidden,
        names_queries=dataset.queries_visibility == Visibility.PUBLIC,
        relevance_level=dataset.relevance_level,
        drop_self_matches=dataset.drop_self_matches,
        candidates_only=dataset.candidates_only,
        measures=tuple(dataset.measures or [dataset.primary_measure]),
    )
    judged_on = (qrels.sha256, qrels.answers_sha256, version.corpus_sha256) if qrels else ("", "", "")
    checksums = version.topics_sha256, version.document_ids_sha256, version.excluded_sha256, *judged_on
    return _target(settings_alone, checksums)


def answer_texts(row: Qrels) -> AnswerTexts | None:
    """Return the answers of these judgements and the texts, read anew to verify scores; None without answers."""
    if not row.answers_sha256:
        return None
    corpus = local_path(Area.FILES, row.version.corpus_sha256)
    return AnswerTexts(path_of(Area.QRELS, row.answers_sha256), corpus)


@lru_cache(maxsize=_KEPT)
def _target(settings_alone: ScoringTarget, checksums: tuple[str, ...]) -> ScoringTarget:
    """Return the target whose content has these checksums. It keeps its lookup tables, so it is kept itself."""
    topics, document_ids, excluded, qrels, answers, corpus = checksums
    return replace(
        settings_alone,
        qrels=_judgements(qrels) if qrels else None,
        query_ids=topic_ids(topics),
        document_ids=_document_ids(document_ids) if document_ids else None,
        excluded=_excluded(excluded) if excluded else None,
        answers=_answers(answers) if answers else None,
        corpus=local_path(Area.FILES, corpus) if answers else None,
    )


def recorded_qrels_path(qrels: Qrels) -> Path:
    """Return the file of these judgements, after the reading is recorded. Call within `leaderboard.core.audit.acting`.

    Whoever calls it has asked for the right `leaderboard.read_qrels`. The record is committed before anything is read:
    not within a transaction that could take it back.
    """
    path = path_of(Area.QRELS, qrels.sha256)
    record_reading(qrels, qrels.version.dataset_id, qrels=qrels.pk)
    return path


def record_reading(subject: object, dataset: int, **what: Any) -> None:
    """Write down that somebody reads judgements, or something that tells them. Within `audit.acting`."""
    record(READ, subject, dataset=dataset, after=what)


@dataclass(frozen=True, slots=True)
class JudgementFile:
    """The judgments of one split, as arrays and as a plain file; `missing` are documents that the corpus lacks."""

    qrels: judged.Qrels
    path: Path
    sha256: str
    missing: frozenset[str] = frozenset()

    def statistics(self, relevance_level: int) -> dict[str, Any]:
        """Return counts for the dataset's page; `relevant` means graded `relevance_level` or higher."""
        grades, counts = np.unique(self.qrels.grades, return_counts=True)
        relevant = np.bincount(
            self.qrels.rows[self.qrels.grades >= relevance_level], minlength=len(self.qrels.query_ids)
        )
        return {
            "judged_queries": len(self.qrels.query_ids),
            "judgements": self.qrels.number_of_judgements,
            "relevant": int(relevant.sum()),
            "relevant_per_query": float(relevant.mean()) if len(relevant) else 0.0,
            "queries_without_relevant": int((relevant == 0).sum()),
            "grades": {str(grade): int(count) for grade, count in zip(grades, counts, strict=True)},
            "relevance_levels": len({0, *grades.tolist()}),
            "negative_grades": self.qrels.negative_count,
            **self._missing_counts(relevance_level),
        }

    def _missing_counts(self, relevance_level: int) -> dict[str, int]:
        if not self.missing:
            return {}
        judgements = self.qrels.judgements()
        relevant = {document for _, document, grade in judgements if grade >= relevance_level} & self.missing
        return {MISSING_DOCUMENTS: len(self.missing), MISSING_RELEVANT: len(relevant)}


def documents_not_in_corpus(qrels: judged.Qrels, documents: DocumentIds) -> list[str]:
    """Return the distinct judged documents that the corpus lacks, in order of the judgments."""
    missing: dict[str, None] = {}
    names = (document for _, document, _ in qrels.judgements())
    while batch := list(islice(names, _LOOKED_UP_AT_ONCE)):
        known = documents.contain(batch).tolist()
        missing |= dict.fromkeys(
            document for document, is_known in zip(batch, known, strict=True) if not is_known
        )
    return list(missing)


def current_or_next_qrels(
    version: DatasetVersion,
    split: str,
    judgements: JudgementFile,
    *,
    answers_sha256: str = "",
    made_from: Qrels | None = None,
    note: str = "",
    judged_by: Mapping[str, Any] | None = None,
) -> Qrels:
    """Return the row of these judgements, made where they are new; `note` says what was added to those `made_from`.

    Without `answers_sha256` those of the row there is, or of `made_from`, stay.
    """
    if made_from is not None:
        answers_sha256 = answers_sha256 or made_from.answers_sha256
    rows = version.qrels.filter(split=split, sha256=judgements.sha256).order_by("-number")
    row = (rows.filter(answers_sha256=answers_sha256) if answers_sha256 else rows).first()
    if row is not None:
        return row
    latest = version.qrels.filter(split=split).aggregate(latest=Max("number"))["latest"] or 0
    return Qrels.objects.create(
        version=version,
        split=split,
        number=latest + 1,
        sha256=judgements.sha256,
        answers_sha256=answers_sha256,
        statistics=judgements.statistics(version.dataset.relevance_level),
        made_from=made_from,
        note=note,
        judged_by=judged_by or {},
    )
