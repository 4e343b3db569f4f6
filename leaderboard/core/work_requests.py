"""Ask for work. The request is a row in the caller's transaction; the wakeup only saves the wait."""

from typing import Any

from django.db.models import Exists

from leaderboard.core import wakeup
from leaderboard.models import Dataset, WorkRequest


def request_work(
    kind: WorkRequest.Kind, dataset: Dataset | int | None, payload: dict[str, Any] | None = None
) -> WorkRequest:
    """Record that a dataset, or its key, needs work of this kind, once the caller's transaction commits."""
    key = dataset.pk if isinstance(dataset, Dataset) else dataset
    request = WorkRequest.objects.create(kind=kind, dataset_id=key, payload=payload or {})
    wakeup.wake_dispatcher()
    return request


def request_certainty(dataset_id: int, method: str = "") -> None:
    """Ask for a board's intervals and tests, unless somebody has and nobody has taken it up yet.

    `method` names the way of computing that is asked for, where that is the reason to ask.
    """
    waiting = WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, dataset=dataset_id, taken_at=None)
    if not waiting.exists():
        request_work(WorkRequest.Kind.CERTAINTY, dataset_id, {"method": method} if method else {})


def request_statistics(dataset_id: int) -> None:
    """Ask for what is not known yet of a dataset's texts and of its runs, unless somebody has just asked.

    Call it in the transaction that brings texts or a run. A dataset without texts here asks for nothing.
    """
    waiting = WorkRequest.objects.filter(kind=WorkRequest.Kind.STATISTICS, dataset=dataset_id, taken_at=None)
    with_texts = Dataset.objects.filter(pk=dataset_id, current_version__corpus_sha256__gt="")
    if with_texts.exclude(Exists(waiting)).exists():
        request_work(WorkRequest.Kind.STATISTICS, dataset_id)


def request_settlement(dataset_id: int, job_id: int) -> None:
    """Ask that the quota of a job be settled, in the transaction that ended it."""
    request_work(WorkRequest.Kind.SETTLE, dataset_id, {"job": job_id})


def request_notice(event: str, **payload: Any) -> WorkRequest:
    """Ask that people be told of an event, in the transaction that makes it; `submissions.notifications` decides whom.

    `event` is a kind of notice: "rescored" (`rescore`, a key), "round_revealed" (`round`), "challenged" (`challenge`).
    The payload has keys of rows and nothing else: what is told is read when it is written.
    """
    return request_work(WorkRequest.Kind.NOTIFY, None, {"event": event, **payload})
