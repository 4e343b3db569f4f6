"""Model jobs on a small collection with the toy engine: made by hand, without the intake."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.engines import ENGINES, Resources, RetrievalTask, retrieve
from evaluation.execution.job import ExecutionJob
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Team, User
from leaderboard.systems.records import SystemFields, create_system
from submissions import sandbox
from submissions.checkpoints.service import checkpoint_folder
from submissions.jobs.checkpoints import run_model
from submissions.jobs.runner import drain_queue
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user, team_of
from tests.submissions import toy_engine
from tests.submissions.clients import Answer
from tests.submissions.workers import announce

DOCUMENTS = 30
#: A model that knows none of the words that it is tried out with gives the same for all of them.
WORDS = ("heart", "blood", "sound", "search", "documents")
PLACES = ("berlin", "paris", "rom")
QUERIES = {"q1": "word common", "q2": "word word text"}


def use_toy_engine(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Have the engine here and in the child, which runs unprotected: a sandbox would not show it the tests."""
    monkeypatch.setitem(ENGINES, toy_engine.NAME, toy_engine.DESCRIPTION)
    monkeypatch.setattr("submissions.sandbox.running._BOOTSTRAP", toy_engine.BOOTSTRAP)
    use_backend(settings, "none")


def use_backend(settings: Any, name: str) -> None:
    """Run children in this sandbox."""
    settings.SANDBOX = name
    settings.MODEL_THREADS = 1
    sandbox.backend.cache_clear()


@pytest.fixture
def with_toy_engine(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The toy engine, and a store of the test's own."""
    settings.VAR = tmp_path / "var"
    use_toy_engine(monkeypatch, settings)


@pytest.fixture
def small(with_toy_engine: None, tmp_path: Path) -> Dataset:
    """A small published collection, and the toy engine."""
    return make_published(tmp_path / "collection")


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are run without measuring how long they take, which takes seconds."""
    monkeypatch.setattr(run_model, "ExecutionJob", partial(ExecutionJob, measure=False))


def import_small(folder: Path, slug: str = "small") -> Dataset:
    """A collection of thirty documents and two queries; its BM25 is asked for."""
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {
            "_id": f"d{n}",
            "title": f"text {n}",
            "text": "common word " * (n % 7) + f"{WORDS[n % 5]} {PLACES[n % 3]}",
        }
        for n in range(DOCUMENTS)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    judged = "".join(f"{query}\td{number}\t1\n" for query in QUERIES for number in (3, 6))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return import_dataset(folder, ImportOptions(slug=slug, hidden=False)).dataset


def make_published(folder: Path, slug: str = "small") -> Dataset:
    """A collection with its BM25."""
    dataset = import_small(folder, slug)
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    assert Job.objects.get(dataset=dataset, kind=Job.Kind.BASELINE).state == State.DONE
    dataset.refresh_from_db()
    return dataset


def make_image_site(settings: Any, folder: Path, person: User) -> Dataset:
    """Prepare a site that runs images in the sandbox for the person's approved team, and return a dataset of it."""
    settings.VAR = folder / "var"
    settings.CONTAINERS = True
    use_backend(settings, "bwrap")
    announce("w2")
    Team.objects.filter(pk=team_of(person).pk).update(runs_containers=True)
    return make_published(folder / "collection")


def make_checkpoint(submission: Submission) -> Checkpoint:
    """A rebuilt checkpoint's folder and row; what the toy engine does not read is not there."""
    description = CheckpointDescription(
        CheckpointKind.STATIC_EMBEDDINGS, ("model",), "static", parameters=12, size=0, sha256="5" * 64
    )
    row, _ = Checkpoint.objects.get_or_create(
        team=submission.team,
        sha256="a" * 64,
        model_sha256="5" * 64,
        kind=description.kind,
        description={},
        size=0,
    )
    folder = checkpoint_folder(row)
    folder.mkdir(parents=True, exist_ok=True)
    description.write(folder)
    return row


def make_submission(name: str = "Toy", **parameters: Any) -> Submission:
    """A submission of a toy model, by somebody new."""
    person = make_user()
    submission = Submission.objects.create(
        kind=Submission.Kind.MODEL,
        submitter=person,
        team=team_of(person),
        system=create_system(team_of(person), SystemFields(name, "dense")),
        engine=toy_engine.NAME,
        parameters=toy_engine.DESCRIPTION.complete(parameters),
    )
    submission.checkpoint = make_checkpoint(submission)
    submission.save()
    return submission


def queue_model(dataset: Dataset, submission: Submission, **payload: Any) -> Job:
    """The submission's job, waiting. It may run unprotected, as the toy engine does."""
    return Job.objects.create(
        kind=Job.Kind.MODEL,
        queue=Job.Queue.CPU,
        dataset=dataset,
        submission=submission,
        state=State.QUEUED,
        validated=True,
        payload={"unprotected": True, **payload},
    )


def run_waiting() -> None:
    """Do what waits, as a worker does."""
    drain_queue("cpu", "test-worker")


def run_submitted(answer: Answer) -> Job:
    """Run the job of an accepted submission to one dataset, and return it."""
    assert answer.status == 201, answer.body
    run_waiting()
    return Job.objects.get(submission=answer.body["id"])


def by_one_process(dataset: Dataset, submission: Submission, out: Path, shard_size: int) -> str:
    """The run that one process makes of the same shards."""
    version = dataset.current_version
    assert version is not None
    assert submission.checkpoint is not None
    task = RetrievalTask(
        submission.engine,
        path_of(Area.FILES, version.corpus_sha256),
        path_of(Area.FILES, version.topics_sha256),
        out,
        parameters={**submission.parameters, "pause": 0.0},
        tag=submission.system.slug,
        resources=Resources(checkpoint=checkpoint_folder(submission.checkpoint)),
        shard_size=shard_size,
    )
    retrieve(task)
    return out.read_text()
