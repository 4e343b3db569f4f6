"""Work requests: rows written in the caller's transaction; the wakeup only shortens the delay."""

from typing import Any

from django.db.models import Exists

from leaderboard.core import wakeup
from leaderboard.models import Dataset, WorkRequest


def request_work(
    kind: WorkRequest.Kind, dataset: Dataset | int | None, payload: dict[str, Any] | None = None
) -> WorkRequest:
    """Record a request for work on a dataset, and wake the dispatcher once the caller's transaction commits."""
    key = dataset.pk if isinstance(dataset, Dataset) else dataset
    request = WorkRequest.objects.create(kind=kind, dataset_id=key, payload=payload or {})
    wakeup.wake_dispatcher()
    return request


def request_certainty(dataset_id: int, method: str = "") -> None:
    """Request confidence intervals and tests for a board, unless a request is already pending.

    Args:
        dataset_id: Primary key of the dataset.
        method: Computation method, if it is the reason for the request.
    """
    pending_requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, dataset=dataset_id, taken_at=None)
    if not pending_requests.exists():
        request_work(WorkRequest.Kind.CERTAINTY, dataset_id, {"method": method} if method else {})


def request_statistics(dataset_id: int) -> None:
    """Request missing statistics of a dataset's texts and runs, unless a request is already pending.

    Call it in the transaction that adds texts or a run. Does nothing for datasets without local texts.
    """
    pending_requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.STATISTICS, dataset=dataset_id, taken_at=None)
    with_texts = Dataset.objects.filter(pk=dataset_id, current_version__corpus_sha256__gt="")
    if with_texts.exclude(Exists(pending_requests)).exists():
        request_work(WorkRequest.Kind.STATISTICS, dataset_id)


def request_settlement(dataset_id: int, job_id: int) -> None:
    request_work(WorkRequest.Kind.SETTLE, dataset_id, {"job": job_id})


def request_notice(event: str, **payload: Any) -> WorkRequest:
    """Request notifications about an event; call it in the event's transaction.

    `submissions.notifications` chooses the recipients and reads all contents when it writes the notices.

    Args:
        event: Kind of notice: "rescored" (payload `rescore`), "round_revealed" (`round`) or "challenged" (`challenge`).
        payload: Primary keys of rows.
    """
    return request_work(WorkRequest.Kind.NOTIFY, None, {"event": event, **payload})
