"""How long a model's job will probably take: a wide range at first, and within a factor of two after three jobs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from evaluation.engines import describe
from leaderboard.models import Dataset, User
from leaderboard.systems.records import SystemFields, create_system
from submissions.models import Checkpoint, Job, State, Submission
from submissions.status.estimates import ModelLoad, TimeEstimate, estimate_time, similar_finished_jobs
from tests.factories import make_user, team_of
from tests.submissions.collections import make_collection
from tests.submissions.models import with_corpus

pytestmark = pytest.mark.django_db

STATIC = ModelLoad(describe("dense"), "static-embeddings", 2_300_000)
BERT = ModelLoad(describe("dense"), "sentence-encoder", 22_700_000)


def sized(folder: Path, slug: str, documents: int) -> Dataset:
    """A dataset that says that it has so many documents."""
    dataset = with_corpus(make_collection(folder, slug), folder)
    version = dataset.current_version
    assert version is not None
    version.statistics = {**version.statistics, "documents": documents}
    version.save()
    return dataset


def ended(dataset: Dataset, load: ModelLoad, seconds: float, **payload: Any) -> Job:
    """A job of such a model that took so long."""
    person, now = make_user(), timezone.now()
    checkpoint, _ = Checkpoint.objects.get_or_create(
        team=team_of(person),
        sha256="a" * 64,
        model_sha256="5" * 64,
        kind=load.kind,
        description={"kind": load.kind, "parameters": load.weights},
        size=0,
    )
    submission = Submission.objects.create(
        kind=Submission.Kind.MODEL,
        submitter=person,
        team=team_of(person),
        system=create_system(team_of(person), SystemFields("It", "dense")),
        engine="dense",
        parameters={},
        checkpoint=checkpoint,
    )
    return Job.objects.create(
        kind=Job.Kind.MODEL,
        queue=Job.Queue.CPU,
        dataset=dataset,
        submission=submission,
        state=State.DONE,
        validated=True,
        started_at=now - timedelta(seconds=seconds),
        finished_at=now,
        payload=payload,
    )


def told(load: ModelLoad, dataset: Dataset) -> tuple[float, float]:
    """Between which seconds it says that the model will take."""
    found: TimeEstimate = estimate_time(load, similar_finished_jobs(load), dataset)
    return found.low.total_seconds(), found.high.total_seconds()


@pytest.mark.parametrize(
    ("load", "documents", "took", "next_took"),
    [
        (STATIC, 13_877, (16, 15, 17), 16),
        (STATIC, 1_400, (12, 11, 40), 12),  # one of them beside others
        (BERT, 13_877, (230, 240, 250), 240),
        (BERT, 3_600, (70, 71, 72), 69),
    ],
)
def test_after_three_jobs_of_a_kind_the_estimate_of_the_fourth_is_within_a_factor_of_two(
    tmp_path: Path, load: ModelLoad, documents: int, took: tuple[float, ...], next_took: float
) -> None:
    dataset = sized(tmp_path, "here", documents)
    other = BERT if load == STATIC else STATIC
    for seconds in (5000, 5000, 5000):  # what computes vectors says nothing of what looks them up
        ended(dataset, other, seconds)
    low, high = told(load, dataset)
    assert low < next_took < high
    assert high > 8 * low, "nothing of the kind has ended yet"
    for number, seconds in enumerate(took):
        assert told(load, dataset)[0] < told(load, dataset)[1], number
        ended(dataset, load, seconds)
    low, high = told(load, dataset)
    assert low == high
    assert next_took / 2 <= low <= next_took * 2
    larger = sized(tmp_path, "larger", 4 * documents)
    growth = 4 if load == BERT else 1
    low, high = told(load, larger)
    assert next_took * growth / 2 <= low <= high <= next_took * 4 * 2


def test_time_before_a_hand_over_counts(tmp_path: Path) -> None:
    dataset = sized(tmp_path, "here", 13_877)
    for _ in range(3):
        ended(dataset, STATIC, 2.0, worked_seconds=14.0, retrieved={"queue": "cpu"})
    assert told(STATIC, dataset) == (pytest.approx(16), pytest.approx(16))


def test_the_page_says_nothing_before_it_knows_the_model_and_then_a_range(
    alice: User, signed_in: Client, tmp_path: Path, models_run_here: None
) -> None:
    dataset = sized(tmp_path, "here", 13_877)
    page = signed_in.get("/submit/model/?engine=dense").content.decode()
    assert "To see the estimated time, upload and check a model" in page
    bm25 = ModelLoad(describe("bm25"))
    page = signed_in.get("/submit/model/?engine=bm25").content.decode()
    assert " to 2 min" in page
    assert told(bm25, dataset)[1] > 60


def test_the_length_that_is_read_counts(tmp_path: Path) -> None:
    """Long documents take longer, as far as they are read; passages read all of them, and more than once."""
    dataset = sized(tmp_path, "long", 10_000)
    version = dataset.current_version
    assert version is not None
    version.statistics = {**version.statistics, "words_per_document": 4_000.0}
    version.save()

    def seconds(**parameters: Any) -> float:
        load = ModelLoad(describe("dense"), "sentence-encoder", 22_700_000, parameters)
        return load.seconds(dataset) - load.minimum_seconds(dataset)

    short, own = seconds(maximum_length=512), seconds()
    assert own == pytest.approx(short * 5_200 / 512)
    assert seconds(passage_words=150, passage_stride=75) == pytest.approx(2 * own)
