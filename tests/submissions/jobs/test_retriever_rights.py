"""What a retriever does, it can do with its own rights in PostgreSQL: nothing that it needs is closed to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard.core.database_grants import RETRIEVER
from leaderboard.datasets.qrels import copy_open_judgements
from leaderboard.models import CollectionProfile, Entry
from leaderboard.results.profiles.store import request_statistics
from submissions.jobs.checkpoints.running import ModelTimedOut
from submissions.jobs.runner import drain_queue
from submissions.models import Job, QuotaUse, State
from submissions.queue.lease import Cancelled
from submissions.queue.queue import ATTEMPTS, create_requested_jobs
from submissions.quotas.ledger import charge, settle_requested
from tests.roles import make_roles, working_as
from tests.submissions.model_jobs import import_small, make_submission, queue_model, use_toy_engine

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture(autouse=True)
def roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The roles, and a retriever without a sandbox."""
    settings.VAR = tmp_path / "var"
    use_toy_engine(monkeypatch, settings)
    make_roles()


def retrieve(settings: Any) -> None:
    """What waits for a retriever, done as one, then what waits for a scorer."""
    copy_open_judgements()
    settings.PRIVATE_STORAGE = False
    with working_as(RETRIEVER):
        drain_queue("cpu", "a-retriever")
    settings.PRIVATE_STORAGE = True
    drain_queue("score", "a-scorer")


def test_a_retriever_does_its_jobs_with_the_rights_it_has(tmp_path: Path, settings: Any) -> None:
    dataset = import_small(tmp_path / "collection")
    create_requested_jobs()
    retrieve(settings)
    baseline = Job.objects.get(kind=Job.Kind.BASELINE)
    assert baseline.state == State.DONE, baseline.log
    dataset.refresh_from_db()
    request_statistics(dataset.pk)
    create_requested_jobs()
    job = queue_model(dataset, make_submission())
    retrieve(settings)
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert Entry.objects.filter(dataset=dataset).count() == 2
    assert CollectionProfile.objects.filter(version=dataset.current_version_id).exists()
    # Of the statistics the second is asked for by the first results, and waits.
    assert Job.objects.filter(kind=Job.Kind.STATISTICS, state=State.DONE).exists()


@pytest.mark.long
def test_a_retriever_encodes_in_shards(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SHARD_SIZE = 10
    dataset = import_small(tmp_path / "collection")
    job = queue_model(dataset, make_submission())
    for _ in range(3):
        Job.objects.update(not_before=None)
        retrieve(settings)
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert Job.objects.filter(kind=Job.Kind.SHARD, state=State.DONE).count() == 3


def raises(error: Exception) -> Callable[..., None]:
    """What stands for the child, and fails so."""

    def fail(*_: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("wrong", "error", "state", "uses"),
    [
        ("not_finite", None, State.REJECTED, {"submission": True, "refusal": False}),
        ("crash", None, State.REJECTED, {"submission": True, "refusal": False}),
        ("", ModelTimedOut(), State.TIMED_OUT, {"submission": False}),
        ("", Cancelled(), State.CANCELLED, {"submission": False}),
        ("", OSError("a disk of ours"), State.FAILED, {"submission": True}),
    ],
    ids=["refused", "crashing", "too slow", "cancelled", "our fault"],
)
def test_a_retriever_ends_what_comes_to_nothing_on_a_hidden_dataset(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    wrong: str,
    error: Exception | None,
    state: State,
    uses: dict[str, bool],
) -> None:
    """`uses` are the kinds of rows that the quota's ledger has then, and whether each is given back.

    The ledger is closed to retrievers: the dispatcher writes it, for jobs that have really ended so.
    """
    dataset = import_small(tmp_path / "collection")
    dataset.hidden = True
    dataset.save()
    submission = make_submission(wrong=wrong)
    charge(submission, [dataset])
    job = queue_model(dataset, submission)
    if error is not None:
        monkeypatch.setattr("submissions.jobs.checkpoints.running.run_job", raises(error))
    for _ in range(ATTEMPTS):
        Job.objects.update(not_before=None)
        retrieve(settings)
    job.refresh_from_db()
    assert job.state == state, job.log
    assert [use.refunded_at for use in QuotaUse.objects.all()] == [None]
    settle_requested()
    assert {use.kind: use.refunded_at is not None for use in QuotaUse.objects.all()} == uses
