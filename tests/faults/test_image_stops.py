"""kill -9 and cancellation of container images at every stage: nothing runs afterwards, and nothing is left or lost."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines import describe
from evaluation.execution.job import ExecutionJob
from leaderboard.core.storage.runs import read_text
from leaderboard.models import Entry, Evaluation
from leaderboard.systems.records import SystemFields, create_system
from submissions.checkpoints import hub
from submissions.checkpoints.service import CheckpointArchive, store_checkpoint
from submissions.jobs.changes import cancel
from submissions.jobs.checkpoints import run_model
from submissions.models import Job, State, Submission
from submissions.sandbox.processes import all_processes, remove
from tests.evaluation.images.builder import docker_archive, image_config, layer, python_layer
from tests.factories import make_user, team_of
from tests.faults.forked import ForkedService
from tests.faults.orders import Victim
from tests.faults.repetitions import NEEDS_POSTGRESQL
from tests.faults.site import Site
from tests.faults.work import doubled, ended, idle, lost, tell_everybody
from tests.servers.certificates import certificate_for_localhost
from tests.servers.registry import REPOSITORY, FakeRegistry, serving
from tests.submissions.model_jobs import import_small, queue_model, use_backend
from tests.submissions.sandbox.images import BATCH, PYTHON, SERVER

pytestmark = pytest.mark.database

#: Times of the queue in parts of production's: a lease of some seconds, since a busy machine unpacks slowly.
SCALE = 0.1
#: Word in the command of every process of the image, by which it is found.
TOKEN = "stopped-image-of-tests"
BATCH_STAGES = ("downloading", "unpacking", "starting", "running", "reading", "handing over")
#: Engines of the stages of servers. The search of a re-ranker consists of requests to its server.
ENGINES = {"encoding": "container-embeddings", "searching": "container-rerank"}
#: Processes to kill, by stage. A sandbox exists only while the image runs.
KILLED: dict[str, tuple[Victim, ...]] = {
    stage: ("child", "worker", "sandbox") if stage in ("running", *ENGINES) else ("child", "worker")
    for stage in (*BATCH_STAGES, *ENGINES)
}


class Retriever(ForkedService):
    """A worker without access to judgments, which hands its runs over to a scorer."""

    def _live(self, parent: int) -> None:
        django_settings.PRIVATE_STORAGE = False
        super()._live(parent)


class ImageWork:
    """A small dataset with its BM25, and one person's images of both interfaces."""

    def __init__(self, site: Site, folder: Path, registry: FakeRegistry) -> None:
        self.site, self.folder, self.registry = site, folder, registry
        self.dataset = import_small(folder / "collection")
        self.layers = python_layer()
        self.count = 0
        site.wait_for(lambda: Job.objects.filter(kind=Job.Kind.BASELINE, state=State.DONE), "BM25")

    def submit(self, stage: str) -> Submission:
        """One more image, of somebody new, so that nothing is unpacked or encoded. Some are in a registry."""
        engine = ENGINES.get(stage, "container")
        self.count += 1
        for path in (Path(django_settings.VAR) / "work").glob("image-*"):
            remove(path)
        program = SERVER if stage in ENGINES else f"import time; time.sleep(2)\n{BATCH}"
        layers = [self.layers, layer({"app/main.py": program.encode(), "number": str(self.count).encode()})]
        config = {"Entrypoint": [PYTHON, "/app/main.py", TOKEN], "WorkingDir": "/app"}
        person = make_user()
        team = team_of(person)
        checkpoint, payload = None, {}
        if stage == "downloading":
            packed = [gzip.compress(content, 1, mtime=0) for content in layers]
            digest = self.registry.add(image_config(layers, **config), packed)
            payload = {"hub_name": f"{self.registry.address}/{REPOSITORY}", "hub_commit": digest}
        else:
            path = docker_archive(self.folder / f"image-{self.count}.tar", layers, **config)
            source = CheckpointArchive(path.name, path)
            checkpoint = store_checkpoint(team, source, person, (CheckpointKind.CONTAINER,))
            path.unlink()
        submission = Submission.objects.create(
            kind=Submission.Kind.MODEL,
            submitter=person,
            team=team,
            system=create_system(team, SystemFields(f"Image {self.count}", "dense")),
            engine=engine,
            parameters=describe(engine).complete(describe(engine).main_alone),
            checkpoint=checkpoint,
        )
        queue_model(self.dataset, submission, **payload)
        return submission

    def finish(self, submission: Submission) -> Job:
        """The submission's job, once it has ended and nothing of it is left."""
        self.site.wait_for(lambda: ended([submission]), "the job to end")
        self.site.wait_for(idle, "the site to be idle")
        self.site.wait_for(lambda: not processes(), f"the processes {processes()} to end", 30)
        self.site.wait_for(lambda: not folders(), f"the folders {folders()} to be removed", 30)
        return Job.objects.get(submission=submission)

    def expected(self, stage: str) -> list[list[str]]:
        """The ranking of an undisturbed run."""
        job = self.finish(self.submit(stage))
        assert job.state == State.DONE, job.log
        return ranking(job)


def ranking(job: Job) -> list[list[str]]:
    """The lines of the job's run, without the tag."""
    assert job.entry is not None
    assert job.entry.evaluation is not None
    return [line.split()[:5] for line in read_text(job.entry.evaluation.run.sha256).decode().splitlines()]


def processes() -> list[int]:
    """Processes of the images of this test, and of sandboxes that show its files."""
    found, marks = [], (TOKEN.encode(), str(django_settings.VAR).encode())
    for process in all_processes():
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            found += [process] if process != os.getpid() and any(mark in command for mark in marks) else []
    return found


def folders() -> list[str]:
    """Folders of jobs, except the unpacked images, which are kept for the next job."""
    work = [path.name for path in (Path(django_settings.VAR) / "work").iterdir() if path.name[:6] != "image-"]
    return work + [path.name for path in Path(tempfile.gettempdir()).glob("runboard-*")]


@pytest.fixture
def images(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[ImageWork]:
    """Two workers that run images in the sandbox, a scorer, and a dispatcher, forked, and images to submit."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    settings.VAR, settings.TIMING_LOCK = tmp_path / "var", str(tmp_path / "timing.lock")
    settings.CONTAINERS = settings.HUB_DOWNLOADS = True
    monkeypatch.setattr(hub, "_IMAGE_PROCESS", "tests.servers.loopback_download")
    use_backend(settings, "bwrap")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(run_model, "ExecutionJob", partial(ExecutionJob, measure=False))
    with serving(certificate_for_localhost(tmp_path), monkeypatch) as registry:  # before the workers are forked
        site = Site(tmp_path / "site", scale=SCALE)
        kinds = {"scorer": (ForkedService, "score"), "dispatcher": (ForkedService, "dispatch")}
        kinds |= {f"retriever-{number}": (Retriever, "cpu") for number in (1, 2)}
        for name, (kind, queue) in kinds.items():
            site.add(kind(name, [queue], site.orders, site.folder / f"{name}.log", SCALE))
        yield ImageWork(site, tmp_path, registry)
        site.stop()


def check_killed(images: ImageWork, stage: str, victim: Victim, expected: list[list[str]]) -> None:
    """The job is retried exactly once, with the result of an undisturbed run."""
    images.site.orders.forget_fired()
    images.site.orders.strike(stage, victim)
    submission = images.submit(stage)
    images.site.wait_for(lambda: not images.site.orders.armed(), f"the {victim} to be killed at “{stage}”")
    job = images.finish(submission)
    assert job.state == State.DONE, job.log
    assert ranking(job) == expected
    assert (job.log.count("Attempt 2 of"), job.log.count("Attempt 3 of")) == (1, 0), job.log


def check_cancelled(images: ImageWork, stage: str) -> None:
    """The job is canceled exactly once, and has no result."""
    images.site.orders.forget_fired()
    images.site.orders.strike(stage, "held")
    images.registry.gate.clear()
    submission = images.submit(stage)
    images.site.wait_for(images.site.orders.fired, f"the job to come to “{stage}”")
    assert bool(processes()) == (stage in ("downloading", "starting", "running", *ENGINES))
    cancel(submission, submission.submitter)
    images.site.orders.forget_fired()
    job = images.finish(submission)
    images.registry.gate.set()
    assert job.state == State.CANCELLED, job.log
    assert job.log.count("Canceled.") == 1, job.log
    assert "Attempt 2" not in job.log
    assert not Entry.objects.filter(system=submission.system).exists()
    assert not Evaluation.objects.filter(run__system=submission.system).exists()


def check_once() -> None:
    """Check that no job or notice is lost or duplicated."""
    tell_everybody()
    assert lost() == []
    assert doubled() == []


def test_images_survive_at_some_stages(images: ImageWork) -> None:
    expected = images.expected("running")
    check_killed(images, "downloading", "worker", expected)
    check_killed(images, "unpacking", "worker", expected)
    check_killed(images, "running", "child", expected)
    check_killed(images, "searching", "child", images.expected("searching"))
    check_once()
    for stage in ("downloading", "running"):
        check_cancelled(images, stage)


@pytest.mark.long
@pytest.mark.parametrize("stage", KILLED)
def test_images_survive(stage: str, images: ImageWork) -> None:
    expected = images.expected(stage)
    for victim in KILLED[stage]:
        check_killed(images, stage, victim, expected)
    check_once()
    check_cancelled(images, stage)
