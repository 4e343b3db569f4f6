"""What the worker leaves for pages once a result is out, and what becomes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets import derived_files
from leaderboard.models import Dataset, Run
from submissions.jobs.cleanup import GRACE, remove_unreferenced
from submissions.models import Job, State
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def prepared(run: Run) -> Path:
    """Where the first documents of a run lie."""
    return path_of(Area.TOP_DOCUMENTS, run.sha256)


def test_a_scored_run_on_open_judgements_is_prepared_and_a_hidden_one_is_not(
    demo: Dataset, secret: Dataset, api: Api
) -> None:
    for dataset in (demo, secret):
        assert api.submit(run_text(tag=dataset.slug), dataset=dataset.slug, system="Mine").status == 201
    work()
    runs = {run.version.dataset_id: run for run in Run.objects.select_related("version")}
    found = derived_files.top_documents(runs[demo.pk])
    assert prepared(runs[demo.pk]).exists()
    assert found is not None
    assert found.get_documents("q1")
    assert not prepared(runs[secret.pk]).exists()


def test_a_fault_while_preparing_costs_no_result(demo: Dataset, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(target: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(derived_files, "atomic_write", broken)
    api.submit(run_text(tag="unlucky"), system="Mine")
    work()
    assert Job.objects.get().state == State.DONE
    assert derived_files.top_documents(Run.objects.get()) is None


def test_first_documents_of_no_run_are_swept(demo: Dataset, api: Api) -> None:
    api.submit(run_text(tag="kept"), system="Mine")
    work()
    kept = prepared(Run.objects.get())
    orphan = kept.with_name("f" * 64)
    orphan.write_bytes(b"")
    for path in (kept, orphan):
        os.utime(path, (time.time() - GRACE - 60,) * 2)
    assert remove_unreferenced() == 1
    assert kept.exists()
    assert not orphan.exists()
