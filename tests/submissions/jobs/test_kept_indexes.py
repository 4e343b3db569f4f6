"""BM25's index of a corpus is built once and kept: what opens it gives the same bytes; a damaged one is made again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluation.execution.job import ExecutionJob
from leaderboard.core.storage.runs import open_run
from leaderboard.core.storage.store import Area
from leaderboard.models import Dataset, Measurement, Run
from leaderboard.systems.baselines import BM25
from submissions.jobs.checkpoints import own_engines, running
from submissions.jobs.checkpoints.own_engines import GRACE, sweep_indexes
from submissions.jobs.cleanup import remove_unreferenced
from submissions.models import Job, State
from submissions.sandbox.running import SandboxOutcome
from tests.submissions.model_jobs import (
    make_published,
    make_submission,
    queue_model,
    run_waiting,
    use_backend,
    use_toy_engine,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[ExecutionJob]:
    """What every child was asked to do, in their order."""
    asked: list[ExecutionJob] = []

    def noted(backend: Any, work: ExecutionJob, *others: Any) -> SandboxOutcome:
        asked.append(work)
        return run_job(backend, work, *others)

    run_job = running.run_job
    monkeypatch.setattr(running, "run_job", noted)
    return asked


@pytest.fixture
def small(children: list[ExecutionJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Dataset:
    """A small published collection whose index is kept all the same, in a store of the test's own."""
    settings.VAR = tmp_path / "var"
    monkeypatch.setattr(own_engines, "MIN_DOCUMENTS", 1)
    use_backend(settings, "none")
    return make_published(tmp_path / "collection")


def places() -> list[Path]:
    """The folders of kept indexes."""
    return list((Path(own_engines.settings.VAR) / Area.WORD_INDEXES.value).glob("??/*"))


def contents(place: Path) -> dict[str, bytes]:
    """The files of an index."""
    return {path.name: path.read_bytes() for path in (place / "index").iterdir()}


def run_baseline(dataset: Dataset) -> bytes:
    """The run of BM25, made once more."""
    dataset.refresh_from_db()
    job = Job.objects.create(kind=Job.Kind.BASELINE, queue="cpu", dataset=dataset, state=State.QUEUED)
    run_waiting()
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    with open_run(Run.objects.filter(system__slug=BM25.slug).latest("pk").sha256) as text:
        return text.read()


def test_the_first_job_builds_it_and_all_others_open_it(
    small: Dataset, children: list[ExecutionJob], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    assert [child.task for child in children] == ["index"]
    (place,) = places()
    before = contents(place)
    again = run_baseline(small)
    use_toy_engine(monkeypatch, settings)
    job = queue_model(small, make_submission())
    run_waiting()
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert [child.task for child in children] == ["index", "retrieve", "measure"]
    assert [child.index for child in children] == [None, None, place / "index"]
    assert contents(place) == before
    figures = Measurement.objects.get(entry__is_baseline=True).figures
    assert figures["build_seconds"] >= children[-1].index_seconds > 0
    assert figures["peak_memory_bytes"] >= children[-1].index_memory > 0
    assert figures["index_bytes"] == sum(map(len, before.values()))
    shutil.rmtree(place)
    monkeypatch.setattr(own_engines, "MIN_DOCUMENTS", 1_000)
    assert run_baseline(small) == again  # from an index of its own
    assert places() == []


def truncate(place: Path) -> None:
    """A disk that was full, or a copy that was cut."""
    path = place / "index" / "documents.npy"
    path.write_bytes(path.read_bytes()[:-4])


def lose_a_file(place: Path) -> None:
    (place / "index" / "ranks.npy").unlink()


def lose_the_index(place: Path) -> None:
    shutil.rmtree(place / "index")


def spoil_a_header(place: Path) -> None:
    """As many bytes as before."""
    path = place / "index" / "offsets.npy"
    path.write_bytes(bytes(64) + path.read_bytes()[64:])


def spoil_the_note(place: Path) -> None:
    """The index is whole, and stays; what its building took is measured again."""
    (note,) = place.glob("*.json")
    note.write_text('{"seconds": 1')


DAMAGES = (spoil_a_header, truncate, lose_a_file, lose_the_index, spoil_the_note, shutil.rmtree)


@pytest.mark.parametrize("damages", [DAMAGES[:1], pytest.param(DAMAGES, marks=pytest.mark.long)], ids=["one", "all"])
def test_what_is_damaged_or_missing_is_built_again_once(
    small: Dataset, children: list[ExecutionJob], damages: Sequence[Callable[[Path], object]]
) -> None:
    (place,) = places()
    before, run = contents(place), run_baseline(small)
    for count, damage in enumerate(damages, 2):
        damage(place)
        assert run_baseline(small) == run, damage
        assert contents(place) == before, damage
        assert len(children) == count, damage
    assert run_baseline(small) == run
    assert [child.task for child in children] == ["index"] * (1 + len(damages))


def test_another_hardware_class_measures_its_building_and_keeps_the_index(
    small: Dataset, children: list[ExecutionJob], settings: Any
) -> None:
    (place,) = places()
    index = (place / "index").stat().st_ino
    settings.MODEL_THREADS = 2
    run_baseline(small)
    run_baseline(small)
    assert [child.threads for child in children] == [1, 2]
    assert len(list(place.glob("*.json"))) == 2
    assert (place / "index").stat().st_ino == index


def test_where_none_can_be_kept_the_job_builds_its_own(
    small: Dataset, children: list[ExecutionJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_baseline(small)
    shutil.rmtree(places()[0])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(own_engines, "move_into_place", full)
    assert run_baseline(small) == run
    assert "BM25's index could not be cached (OSError)." in Job.objects.latest("pk").log
    assert places() == []


def test_the_sweep_keeps_indexes_of_current_versions_within_the_bound(
    small: Dataset, tmp_path: Path, settings: Any
) -> None:
    (place,) = places()
    other = make_published(tmp_path / "other", "other")
    assert len(places()) == 1  # the same corpus
    old = time.time() - GRACE - 60
    os.utime(place, (old, old))
    assert sweep_indexes() == 0
    settings.EMBEDDINGS_CACHE_BYTES = 1
    fresh = place.with_name("a" * 64)
    shutil.copytree(place, fresh)
    os.utime(fresh)
    assert sweep_indexes() == 1
    assert places() == [fresh]
    settings.EMBEDDINGS_CACHE_BYTES = 2**30
    Dataset.objects.filter(pk__in=(small.pk, other.pk)).update(current_version=None)
    assert sweep_indexes() == 0  # a job may be about to open it
    os.utime(fresh, (old, old))
    remove_unreferenced()
    assert places() == []
