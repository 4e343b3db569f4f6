"""Ask for work. The request is a row in the caller's transaction; the bell only saves the wait."""

from __future__ import annotations

from typing import Any

from leaderboard import bell
from leaderboard.models import Dataset, WorkRequest


def request_work(
    kind: WorkRequest.Kind, dataset: Dataset, payload: dict[str, Any] | None = None
) -> WorkRequest:
    """Record that `dataset` needs work of this kind, once the caller's transaction commits."""
    request = WorkRequest.objects.create(kind=kind, dataset=dataset, payload=payload or {})
    bell.ring()
    return request
