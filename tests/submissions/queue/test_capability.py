"""Workers say what they can run models in, and take no job that they cannot do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from evaluation.core.problems import ModelFailure
from evaluation.efficiency.hardware import list_gpu_files
from evaluation.execution.job import ExecutionJob
from leaderboard.models import Dataset, User
from submissions import sandbox
from submissions.intake.checkpoints.readiness import readiness
from submissions.jobs.checkpoints.running import get_result
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State, Worker
from submissions.queue import workers as capability
from submissions.queue.queue import claim
from submissions.queue.workers import Heartbeat, delete_silent_workers, workers_alive
from submissions.sandbox import SandboxUnavailable
from submissions.sandbox.backends import Backend, Program, SandboxedProcess, UnprotectedBackend
from submissions.sandbox.running import SandboxOutcome
from tests.factories import make_dataset, make_user
from tests.submissions.workers import announce

pytestmark = [pytest.mark.database, pytest.mark.django_db]


class Broken(Backend):
    """A sandbox that works once something has been installed, or seems to."""

    name = "bwrap"
    remedy = "apt install bubblewrap"
    installed = False

    def probe(self) -> str:
        return "" if Broken.installed else "it is not installed"

    def start(self, program: Program) -> SandboxedProcess:
        raise SandboxUnavailable("it was removed")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """The only sandbox of this machine does not work."""
    settings.SANDBOX = "auto"
    monkeypatch.setitem(sandbox._BACKENDS, "auto", Broken)
    monkeypatch.setattr(Broken, "installed", False)
    capability.reset_own_capability()
    yield
    capability.reset_own_capability()


def make_job(kind: Job.Kind, dataset: Dataset, **payload: Any) -> Job:
    """A job that waits for a retriever."""
    return Job.objects.create(
        kind=kind,
        queue=Job.Queue.CPU,
        dataset=dataset,
        state=State.QUEUED,
        validated=True,
        payload=payload,
    )


def taken(able: capability.Capability) -> list[str]:
    """The kinds of jobs that a worker of this capability claims, by their names."""
    kinds = []
    while (job := claim(["cpu"], "w", able.job_filter())) is not None:
        kinds.append(job.kind)
    return sorted(kinds)


ISOLATED = capability.Capability(True, True, "bwrap")
UNPROTECTED = capability.Capability(True, False, "none")
UNABLE = capability.Capability(False, False, "bwrap", "it is not installed", "apt install bubblewrap")


@pytest.mark.parametrize(
    ("able", "expected"),
    [
        (ISOLATED, ["baseline", "model", "model", "retrieve", "sample_model", "shard"]),
        (UNPROTECTED, ["baseline", "model", "retrieve", "sample_model"]),
        (UNABLE, ["baseline", "retrieve", "sample_model"]),
    ],
    ids=["sandbox", "SANDBOX=none", "nothing works"],
)
def test_a_worker_takes_what_it_can_do(able: capability.Capability, expected: list[str]) -> None:
    """Without a sandbox a stranger's model is left to others; the site's own, and BM25, are not."""
    dataset = make_dataset()
    make_job(Job.Kind.MODEL, dataset)
    make_job(Job.Kind.SHARD, dataset)
    make_job(Job.Kind.MODEL, dataset, unprotected=True)
    for kind in (Job.Kind.RETRIEVE, Job.Kind.BASELINE, Job.Kind.SAMPLE_MODEL):
        make_job(kind, dataset)
    assert taken(able) == expected
    left = Job.objects.filter(lease_expires_at=None)
    assert not left.filter(attempts__gt=0).exists()
    assert left.filter(payload={"unprotected": True}).exists() is (able == UNABLE)


def test_a_model_waits_where_nothing_works_and_costs_no_attempt(broken: None) -> None:
    job = make_job(Job.Kind.MODEL, make_dataset())
    assert drain_queue("cpu", "w") == 0
    job.refresh_from_db()
    assert (job.state, job.attempts, job.log) == (State.QUEUED, 0, "")
    announce(**UNABLE.as_dict())
    obstacle = capability.find_obstacle(job)
    assert obstacle is not None
    assert "No worker with a working sandbox is online: it is not installed." in obstacle.text
    assert "To fix it: `apt install bubblewrap`." in obstacle.text
    announce("another")
    assert capability.find_obstacle(job) is None


def test_what_was_installed_is_found_within_a_minute(broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert capability.own_capability() == UNABLE
    Broken.installed = True
    assert capability.own_capability() == UNABLE
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert capability.own_capability() == ISOLATED


def test_a_name_of_no_sandbox_is_said(settings: Any) -> None:
    settings.SANDBOX = "nsjail"
    capability.reset_own_capability()
    found = capability.own_capability()
    settings.SANDBOX = "auto"
    capability.reset_own_capability()
    assert not found.works
    assert "not 'nsjail'" in found.reason


def wait_until(condition: Callable[[], object]) -> None:
    """Until it holds, two minutes at most."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.django_db(transaction=True)
def test_a_worker_announces_its_sandbox_and_is_remembered(broken: None) -> None:
    """Those for models say what they found; after their end the row says it for a day."""
    Broken.installed = True
    retriever, scorer = Heartbeat("r", ["cpu"], ""), Heartbeat("s", ["score", "dispatch"], "")
    retriever.start()
    scorer.start()
    wait_until(lambda: Worker.objects.count() == 2)
    assert Worker.objects.get(name="r").sandbox == {**ISOLATED.as_dict(), "device": "cpu"}
    assert Worker.objects.get(name="s").sandbox == {}
    assert capability.reported_capabilities() == [ISOLATED]
    retriever.stop()
    scorer.stop()
    assert (workers_alive("cpu"), workers_alive("score")) == (0, 0)
    assert capability.reported_capabilities() == []
    assert capability.reported_capabilities(timedelta(hours=1)) == [ISOLATED]
    Worker.objects.update(seen_at=timezone.now() - timedelta(days=2))
    delete_silent_workers()
    assert not Worker.objects.exists()


def test_words_of_another_version_are_understood() -> None:
    """A worker that was updated later, or earlier, than the site."""
    announce(colour="blue")
    assert capability.reported_capabilities() == [ISOLATED]


def test_a_sandbox_that_stops_working_is_tried_anew(
    broken: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After the first job that it fails, others wait instead of failing too."""
    from submissions.jobs import runner

    Broken.installed = True
    dataset = make_dataset()
    first, second = make_job(Job.Kind.MODEL, dataset), make_job(Job.Kind.MODEL, dataset)

    def start(job: Job, lease: object) -> None:
        Broken.installed = False
        raise SandboxUnavailable("it was removed")

    monkeypatch.setitem(runner.WORK, Job.Kind.MODEL, start)
    assert drain_queue("cpu", "w") == 1
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, first.attempts, second.attempts) == (State.QUEUED, 0, 0)


def test_a_job_that_fills_its_own_disk_is_tried_three_times(broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is gone by then: the worker would take it again at once, and has nothing to wait for."""
    from submissions.jobs import runner

    Broken.installed = True
    job = make_job(Job.Kind.MODEL, make_dataset())

    def fill_disk(job: Job, lease: object) -> None:
        raise SandboxUnavailable("The disk of this worker is nearly full.")

    monkeypatch.setitem(runner.WORK, Job.Kind.MODEL, fill_disk)
    for _ in range(3):
        Job.objects.update(not_before=None)
        drain_queue("cpu", "w")
    job.refresh_from_db()
    assert (job.state, job.attempts) == (State.FAILED, 3)


def test_a_worker_whose_disk_is_nearly_full_takes_no_models_and_says_so(
    broken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Broken.installed = True
    job = make_job(Job.Kind.MODEL, make_dataset())
    with monkeypatch.context() as patch:
        patch.setattr("submissions.sandbox.supervision.free_bytes", lambda folder: 500 << 20)
        assert drain_queue("cpu", "w") == 0
        Heartbeat("w", ["cpu"], "")._write_row()
    obstacle = capability.find_obstacle(job)
    assert obstacle is not None
    assert "No worker with enough disk space is online: The disk of this worker is nearly full." in obstacle.text
    # What is sent meanwhile waits: nothing has to be installed.
    found = readiness(make_user("ada"), local=False)
    assert (found.ready, found.asleep, found.unprotected) == (True, True, False)
    assert capability.own_capability() == ISOLATED


@pytest.fixture
def dead_gpu(broken: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The sandbox works, and nothing in it can compute on the GPU. Returns why."""
    Broken.installed = True
    reason = "Torch not compiled with CUDA enabled"
    monkeypatch.setattr(Broken, "cuda_reason", reason, raising=False)
    return reason


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_gpu_cannot_be_used_says_so_and_takes_nothing(dead_gpu: str, client: Client) -> None:
    """Models go to the queue cpu then; those that wait for a GPU wait, and cost no attempt."""
    job = make_job(Job.Kind.MODEL, make_dataset())
    Job.objects.update(queue="gpu")
    heartbeat = Heartbeat("g", ["gpu"], "")
    heartbeat._write_row()
    assert drain_queue("gpu", "g") == 0
    job.refresh_from_db()
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert not any(each.runs(unprotected=True) for each in capability.reported_capabilities(queues=["gpu"]))
    assert capability.count_workers("gpu") == (0, 1)
    client.force_login(User.objects.create_superuser("op@example.org", "a long passphrase"))
    page = client.get("/admin/submissions/worker/").content.decode()
    assert f"Its GPU cannot be used: {dead_gpu}." in page
    assert "refuses work" in page
    assert "1 GPU job waits: its workers refuse work." in page
    obstacle = capability.find_obstacle(job)
    assert obstacle is not None
    assert f"No worker with a working GPU is online: {dead_gpu}." in obstacle.text
    # What its sandbox can do without a GPU it can do.
    assert capability.own_capability(["cpu"]) == ISOLATED


def test_a_gpu_that_fails_under_a_model_is_no_fault_of_the_model(
    dead_gpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = ExecutionJob("retrieve", "dense", tmp_path, device="cuda")
    outcome = SandboxOutcome("model_failed", 1.0, 0, failure_code="does_not_run")
    with pytest.raises(RuntimeError, match=dead_gpu):
        get_result(outcome, work, trusted=False)
    assert not capability.own_capability(["gpu"]).works
    monkeypatch.setattr(Broken, "cuda_reason", "")
    with pytest.raises(ModelFailure):
        get_result(outcome, work, trusted=False)
    assert capability.own_capability(["gpu"]) == ISOLATED


def test_a_process_hears_that_another_of_its_worker_wants_another_try(broken: None) -> None:
    """The one that says what the worker can do is not the one that works."""
    assert capability.own_capability() == UNABLE
    Broken.installed = True
    other = get_context("fork").Process(target=capability.reset_own_capability)
    other.start()
    other.join()
    assert capability.own_capability() == ISOLATED


@pytest.mark.long_on_postgresql
def test_the_gpu_is_tried_by_computing_on_it() -> None:
    """In the sandbox, with the torch that models have. Where there is no GPU the reason is torch's own, in a line."""
    reason = UnprotectedBackend().cuda_reason
    assert bool(reason) != bool(list_gpu_files())
    assert "CUDA" in reason or "NVIDIA" in reason or not reason
    assert "\n" not in reason
