"""Disclosure of hidden judgments: single pairs are visible only to users who may read hidden judgments.

Every comparison with hidden judgments, and every access to its results, is recorded.
"""

from typing import Any

from django.contrib.auth.models import AnonymousUser

from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements import qrels as judged
from leaderboard.core.audit import actor, record
from leaderboard.core.permissions import may_read_judgements
from leaderboard.datasets.files import seals_queries
from leaderboard.datasets.qrels import load_qrels, record_reading
from leaderboard.models import Dataset, JudgementImport, Pool, Qrels, Rescore, User

#: Counts of a file and its documents, which reveal nothing about stored judgments.
_FILE_COUNTS = ("lines", "pairs", "unjudged", "missing")

#: Audit action for comparisons.
COMPARED = "compared with hidden judgements"

Person = User | AnonymousUser | None


def may_see_counts(dataset: Dataset, person: Person) -> bool:
    """Return whether the user may know what is judged; always True for open judgments."""
    return not dataset.hidden or (person is not None and may_read_judgements(person))


def is_secret(import_: JudgementImport, qrels: Qrels | None) -> bool:
    """Return whether the comparison of the import reveals hidden judgments; False without earlier judgments."""
    return import_.dataset.hidden and qrels is not None


def is_blind_decision(import_: JudgementImport, person: Person) -> bool:
    """Return whether the user decides on the import without seeing new pairs and conflicts."""
    return is_secret(import_, import_.against) and not may_see_counts(import_.dataset, person)


def visible_counts(import_: JudgementImport, person: Person) -> dict[str, Any]:
    """Return the counts of the import that the user may see."""
    if not is_blind_decision(import_, person):
        return dict(import_.counts)
    return {name: import_.counts[name] for name in _FILE_COUNTS if name in import_.counts}


def record_compared(subject: object, dataset: Dataset, qrels: Qrels | None) -> None:
    """Record a comparison with hidden judgments, without any numbers. Call this within `audit.acting`."""
    if dataset.hidden and qrels is not None:
        record(COMPARED, subject, dataset=dataset, after={"qrels": qrels.number})


def load_compared(subject: object, row: Qrels, refusal: Problem) -> judged.Qrels:
    """Return a row's judgments for a comparison with `subject`, after recording the comparison if they are hidden.

    Call this within `audit.acting`, and outside of transactions that a refusal rolls back. Raises InvalidContent with
    `refusal`, before anything is read, if the acting user may not read hidden judgments.
    """
    dataset = row.version.dataset
    if not may_see_counts(dataset, actor().person):
        raise InvalidContent.build(refusal)
    record_compared(subject, dataset, row)
    return load_qrels(row)


def record_comparison_read(import_: JudgementImport, conflict_count: int) -> None:
    """Record access to the new pairs and to `conflict_count` conflicts with both grades."""
    record_reading(import_, import_.dataset_id, what="comparison", conflicts=conflict_count)


def reveals_judged(pool: Pool) -> bool:
    """Return whether the pool reveals hidden judgments, because judged documents are missing from it."""
    return pool.dataset.hidden and pool.qrels_id is not None


def record_counts_read(pool: Pool) -> None:
    """Record access to the number of unjudged pairs in the pool."""
    if reveals_judged(pool):
        record_reading(pool, pool.dataset_id, what="how many pairs are judged", qrels=_qrels_number(pool.qrels))


def record_preview_read(rescore: Rescore) -> None:
    """Record access to results on hidden judgments that no board uses yet."""
    if is_secret_preview(rescore):
        record_reading(rescore, rescore.dataset_id, what="preview of a rescore", qrels=rescore.to_qrels.number)


def is_secret_preview(rescore: Rescore) -> bool:
    """Return whether the rescore's values would reveal hidden judgments and are not public."""
    return rescore.dataset.hidden and rescore.state != Rescore.State.SWITCHED


def record_pool_read(pool: Pool, form: str) -> None:
    """Record which hidden judgments or hidden queries a download of the pool reveals, if any."""
    if reveals_judged(pool):
        record_reading(pool, pool.dataset_id, what="which pairs are judged", qrels=_qrels_number(pool.qrels))
    if form != "trec" and seals_queries(pool.dataset):
        record("read hidden queries", pool, dataset=pool.dataset_id)


def downloadable_forms(pool: Pool, person: Person) -> list[str]:
    """Return the pool formats that the user may download.

    Texts of hidden queries require the permission to read them.
    """
    is_sealed = seals_queries(pool.dataset) and not may_see_counts(pool.dataset, person)
    return [form for form in pool.files if form == "trec" or not is_sealed]


def _qrels_number(qrels: Qrels | None) -> int | None:
    return qrels.number if qrels is not None else None
