"""Workers, as rows and as calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from submissions.jobs.runner import drain_queue
from submissions.models import Worker


def work() -> None:
    """Do what waits, as a worker does."""
    drain_queue("score", "test-worker")


SANDBOX = {"works": True, "isolates": True, "backend": "bwrap", "reason": "", "remedy": ""}


def announce(name: str = "w2", queue: str = "cpu", ago: timedelta = timedelta(0), **changes: Any) -> Worker:
    """A worker for models that was heard of so long ago, with a sandbox that works but for the changes."""
    seen = timezone.now() - ago
    told = {**SANDBOX, **changes}
    worker, _ = Worker.objects.update_or_create(
        name=name, defaults={"queues": [queue], "sandbox": told, "started_at": seen, "seen_at": seen}
    )
    return worker
