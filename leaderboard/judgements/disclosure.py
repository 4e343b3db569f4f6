"""What is told of hidden judgements, and to whom: of single pairs nothing but to those who may read them.

Every comparison with hidden judgements is recorded as one, and every look at what came of it as a reading.
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
_OF_THE_FILE = ("lines", "pairs", "unjudged", "missing")

#: What the record calls a comparison.
COMPARED = "compared with hidden judgements"

Person = User | AnonymousUser | None


def may_see_counts(dataset: Dataset, person: Person) -> bool:
    """Whether the person may know what is judged: of open judgements everybody."""
    return not dataset.hidden or (person is not None and may_read_judgements(person))


def is_secret(brought: JudgementImport, against: Qrels | None) -> bool:
    """Whether what comes of comparing the import tells hidden judgements. Beside none there is nothing to tell."""
    return brought.dataset.hidden and against is not None


def is_blind_decision(brought: JudgementImport, person: Person) -> bool:
    """Whether the person decides on the import without being told what is new and where grades disagree."""
    return is_secret(brought, brought.against) and not may_see_counts(brought.dataset, person)


def visible_counts(brought: JudgementImport, person: Person) -> dict[str, Any]:
    """Return the import's counts, as far as the person may know them."""
    if not is_blind_decision(brought, person):
        return dict(brought.counts)
    return {name: brought.counts[name] for name in _OF_THE_FILE if name in brought.counts}


def record_compared(subject: object, dataset: Dataset, against: Qrels | None) -> None:
    """Write down that something is held against hidden judgements. Within `audit.acting`; no number is kept."""
    if dataset.hidden and against is not None:
        record(COMPARED, subject, dataset=dataset, after={"qrels": against.number})


def load_compared(subject: object, row: Qrels, refusal: Problem) -> judged.Qrels:
    """Return a dataset's judgements to compare `subject` with; if they are hidden, record the comparison first.

    Call within `audit.acting`, and outside of a transaction that a refusal rolls back. Raises InvalidContent with
    `refusal`, before anything is read, if the acting person may not read hidden judgements.
    """
    dataset = row.version.dataset
    if not may_see_counts(dataset, actor().person):
        raise InvalidContent.of(refusal)
    record_compared(subject, dataset, row)
    return load_qrels(row)


def record_comparison_read(brought: JudgementImport, listed: int) -> None:
    """Write down that somebody sees what is new and where grades disagree, `listed` conflicts with both grades."""
    record_reading(brought, brought.dataset_id, what="comparison", conflicts=listed)


def reveals_judged(pool: Pool) -> bool:
    """Whether the pool tells hidden judgements: what is missing of a run's first documents is judged."""
    return pool.dataset.hidden and pool.qrels_id is not None


def record_counts_read(pool: Pool) -> None:
    """Write down that somebody is told how many pairs of the pool are not judged."""
    if reveals_judged(pool):
        record_reading(pool, pool.dataset_id, what="how many pairs are judged", qrels=_number(pool.qrels))


def record_preview_read(rescore: Rescore) -> None:
    """Write down that somebody sees what results come to on hidden judgements that no board stands on."""
    if is_secret_preview(rescore):
        record_reading(
            rescore, rescore.dataset_id, what="preview of a rescore", qrels=rescore.to_qrels.number
        )


def is_secret_preview(rescore: Rescore) -> bool:
    """Whether the rescore's numbers tell hidden judgements and are not public."""
    return rescore.dataset.hidden and rescore.state != Rescore.State.SWITCHED


def record_pool_read(pool: Pool, form: str) -> None:
    """Write down that somebody downloads a pool."""
    if reveals_judged(pool):
        record_reading(pool, pool.dataset_id, what="which pairs are judged", qrels=_number(pool.qrels))
    if form == "csv" and seals_queries(pool.dataset):
        record("read hidden queries", pool, dataset=pool.dataset_id)


def downloadable_forms(pool: Pool, person: Person) -> list[str]:
    """Return the forms of the pool that the person may have: hidden queries' texts only with the right to read them."""
    sealed = seals_queries(pool.dataset) and not may_see_counts(pool.dataset, person)
    return [form for form in pool.files if form != "csv" or not sealed]


def _number(qrels: Qrels | None) -> int | None:
    return qrels.number if qrels is not None else None
