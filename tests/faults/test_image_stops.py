"""kill -9 and cancellation of container images at every stage: nothing runs afterwards, and nothing is left or lost."""

from __future__ import annotations

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
from submissions.checkpoints.service import CheckpointArchive, store_checkpoint
from submissions.jobs.changes import cancel
from submissions.jobs.checkpoints import run_model
from submissions.models import Job, State, Submission
from submissions.sandbox.processes import all_processes, remove
from tests.evaluation.images.builder import docker_archive, layer, python_layer
from tests.factories import make_user, team_of
from tests.faults.forked import ForkedService
from tests.faults.orders import Victim
from tests.faults.repetitions import NEEDS_POSTGRESQL
from tests.faults.site import Site
from tests.faults.work import doubled, ended, idle, lost, tell_everybody
from tests.submissions.model_jobs import import_small, queue_model, use_backend
from tests.submissions.sandbox.images import BATCH, PYTHON, SERVER

pytestmark = pytest.mark.database

#: Times of the queue in parts of production's: a lease of some seconds, since a busy machine unpacks slowly.
SCALE = 0.1
#: Word in the command of every process of the image, by which it is found.
TOKEN = "stopped-image-of-tests"
BATCH_STAGES = ("unpacking", "starting", "running", "reading", "handing over")
#: Processes to kill, by stage. A sandbox exists only while the image runs.
KILLED: dict[str, tuple[Victim, ...]] = {
    stage: ("child", "worker", "sandbox") if stage in ("running", "encoding") else ("child", "worker")
    for stage in (*BATCH_STAGES, "encoding")
}


class Retriever(ForkedService):
    """A worker without access to judgments, which hands its runs over to a scorer."""

    def _live(self, parent: int) -> None:
        django_settings.PRIVATE_STORAGE = False
        super()._live(parent)


class ImageWork:
    """A small dataset with its BM25, and one person's images of both interfaces."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.dataset = import_small(folder / "collection")
        self.layers = python_layer()
        self.count = 0
        site.wait_for(lambda: Job.objects.filter(kind=Job.Kind.BASELINE, state=State.DONE), "BM25")

    def submit(self, engine: str) -> Submission:
        """One more image, of somebody new, so that nothing is unpacked or encoded."""
        self.count += 1
        for path in (Path(django_settings.VAR) / "work").glob("image-*"):
            remove(path)
        program = SERVER if engine == "container-embeddings" else f"import time; time.sleep(2)\n{BATCH}"
        path = self.folder / f"image-{self.count}.tar"
        content = layer({"app/main.py": program.encode(), "number": str(self.count).encode()})
        docker_archive(path, [self.layers, content], Entrypoint=[PYTHON, "/app/main.py", TOKEN], WorkingDir="/app")
        person = make_user()
        team = team_of(person)
        submission = Submission.objects.create(
            kind=Submission.Kind.MODEL,
            submitter=person,
            team=team,
            system=create_system(team, SystemFields(f"Image {self.count}", "dense")),
            engine=engine,
            parameters=describe(engine).complete({}),
            checkpoint=store_checkpoint(team, CheckpointArchive(path.name, path), person, (CheckpointKind.CONTAINER,)),
        )
        path.unlink()
        queue_model(self.dataset, submission)
        return submission

    def finish(self, submission: Submission) -> Job:
        """The submission's job, once it has ended and nothing of it is left."""
        self.site.wait_for(lambda: ended([submission]), "the job to end")
        self.site.wait_for(idle, "the site to be idle")
        self.site.wait_for(lambda: not processes(), f"the processes {processes()} to end", 30)
        self.site.wait_for(lambda: not folders(), f"the folders {folders()} to be removed", 30)
        return Job.objects.get(submission=submission)

    def expected(self, engine: str) -> list[list[str]]:
        """The ranking of an undisturbed run."""
        job = self.finish(self.submit(engine))
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
    settings.CONTAINERS = True
    use_backend(settings, "bwrap")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(run_model, "ExecutionJob", partial(ExecutionJob, measure=False))
    site = Site(tmp_path / "site", scale=SCALE)
    kinds = {"scorer": (ForkedService, "score"), "dispatcher": (ForkedService, "dispatch")}
    kinds |= {f"retriever-{number}": (Retriever, "cpu") for number in (1, 2)}
    for name, (kind, queue) in kinds.items():
        site.add(kind(name, [queue], site.orders, site.folder / f"{name}.log", SCALE))
    yield ImageWork(site, tmp_path)
    site.stop()


def check_killed(images: ImageWork, stage: str, victim: Victim, expected: list[list[str]]) -> None:
    """The job is retried exactly once, with the result of an undisturbed run."""
    images.site.orders.forget_fired()
    images.site.orders.strike(stage, victim)
    submission = images.submit("container-embeddings" if stage == "encoding" else "container")
    images.site.wait_for(lambda: not images.site.orders.armed(), f"the {victim} to be killed at “{stage}”")
    job = images.finish(submission)
    assert job.state == State.DONE, job.log
    assert ranking(job) == expected
    assert (job.log.count("Attempt 2 of"), job.log.count("Attempt 3 of")) == (1, 0), job.log


def check_cancelled(images: ImageWork, stage: str) -> None:
    """The job is canceled exactly once, and has no result."""
    images.site.orders.forget_fired()
    images.site.orders.strike(stage, "held")
    submission = images.submit("container-embeddings" if stage == "encoding" else "container")
    images.site.wait_for(images.site.orders.fired, f"the job to come to “{stage}”")
    assert bool(processes()) == (stage in ("starting", "running", "encoding"))
    cancel(submission, submission.submitter)
    images.site.orders.forget_fired()
    job = images.finish(submission)
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


def test_images_survive_at_two_stages(images: ImageWork) -> None:
    expected = images.expected("container")
    check_killed(images, "unpacking", "worker", expected)
    check_killed(images, "running", "child", expected)
    check_once()
    check_cancelled(images, "running")


@pytest.mark.long
@pytest.mark.parametrize("stage", KILLED)
def test_images_survive(stage: str, images: ImageWork) -> None:
    expected = images.expected("container-embeddings" if stage == "encoding" else "container")
    for victim in KILLED[stage]:
        check_killed(images, stage, victim, expected)
    check_once()
    check_cancelled(images, stage)
