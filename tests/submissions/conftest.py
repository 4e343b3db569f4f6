"""What every test of submissions may ask for: collections, people, a hub, a receiver of messages, a sandbox."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from submissions.models import Worker
from submissions.sandbox.backends import Backend
from submissions.sandbox.bubblewrap import Bubblewrap
from tests.servers.plugin import in_ci
from tests.submissions.collections import baseline as baseline
from tests.submissions.collections import demo as demo
from tests.submissions.collections import secret as secret
from tests.submissions.fake_hub import hub as hub
from tests.submissions.model_jobs import small as small
from tests.submissions.model_jobs import unmeasured as unmeasured
from tests.submissions.model_jobs import with_toy_engine as with_toy_engine
from tests.submissions.people import alice as alice
from tests.submissions.people import api as api
from tests.submissions.people import curator as curator
from tests.submissions.people import nobody as nobody
from tests.submissions.people import signed_in as signed_in
from tests.submissions.people import stranger as stranger
from tests.submissions.receiver import receiver as receiver
from tests.submissions.receiver import webhook as webhook
from tests.submissions.workers import announce


@pytest.fixture(autouse=True)
def server_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are taken from silent workers, which nobody does in the first seconds of a database server."""
    monkeypatch.setattr("submissions.queue.queue._database_uptime", lambda: float("inf"))


@pytest.fixture(autouse=True)
def no_worker_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed in an earlier test has no worker of a later one stand back."""
    monkeypatch.setattr("submissions.jobs.runner._Failures.consecutive_failures", 0)
    monkeypatch.setattr("submissions.jobs.runner._Failures.paused_until", -math.inf)


@pytest.fixture(autouse=True)
def no_time_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all times for those of a quiet machine, whatever runs beside the tests."""
    monkeypatch.setattr("leaderboard.results.board_rows.measurements.noise_reasons", lambda figures: [])
    monkeypatch.setattr("leaderboard.results.efficiency.noise_reasons", lambda figures: [])


@pytest.fixture(autouse=True)
def checkpoints_were_checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the library, in a child of its own, which takes seconds; those who ask for it say `the_library_checks`."""
    if "the_library_checks" not in request.fixturenames:
        monkeypatch.setattr("submissions.jobs.checkpoints.running.is_checked", lambda note: True)


@pytest.fixture
def the_library_checks() -> None:
    """A job begins with the library's verdict on its checkpoint."""


@pytest.fixture
def live_worker(db: None) -> None:
    """A worker that has just been heard of."""
    now = timezone.now()
    Worker.objects.create(name="w1", queues=["score", "cpu"], started_at=now, seen_at=now)


@pytest.fixture
def models_run_here(db: None) -> None:
    """A site that takes models, whether or not this machine has a sandbox: its worker rests, nothing is run here."""
    announce("resting", ago=timedelta(minutes=5))


@pytest.fixture
def stored_files(settings: Any) -> Callable[[], set[str]]:
    """What the store holds: `runs/<sha256>` and `uploads/<sha256>`."""

    def names() -> set[str]:
        folder = Path(settings.VAR) / "store"
        return {
            f"{area}/{path.name}"
            for area in ("runs", "uploads")
            for path in (folder / area).rglob("*")
            if path.is_file()
        }

    return names


@pytest.fixture(scope="module")
def bubblewrap() -> Backend:
    """The sandbox; without one these tests prove nothing, which CI takes for a failure."""
    backend = Bubblewrap()
    if not backend.available:
        reason = f"NO SANDBOX: {backend.reason}. {backend.remedy}"
        if in_ci():
            pytest.fail(reason)
        pytest.skip(reason)
    return backend


@pytest.fixture
def own_lock(settings: Any, tmp_path: Path) -> None:
    """A lock of timings for this test alone."""
    settings.TIMING_LOCK = str(tmp_path / "timing.lock")
