"""Models between their request and their job: downloads from the hub, credits, cleanup, and estimates."""

from __future__ import annotations

import io
import os
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.core.problems import InvalidRun
from leaderboard.core.storage.runs import store_run
from leaderboard.models import Dataset, Qrels, Run, User
from leaderboard.systems.records import SystemFields
from submissions.accounts.teams import personal_team
from submissions.checkpoints.service import (
    CheckpointArchive,
    checkpoint_folder,
    store_checkpoint,
    store_files,
    sweep_checkpoints,
)
from submissions.intake.checkpoints import intake
from submissions.jobs.changes import set_public
from submissions.jobs.checkpoints.downloads import fetched_checkpoint
from submissions.jobs.kinds.score import ScoredResult, current_qrels, evaluate_run, publish_results
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.lease import Lease
from submissions.queue.queue import claim
from tests.factories import make_a_curator
from tests.servers.hub import COMMIT, FakeHub
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.fake_hub import NAME
from tests.submissions.models import static_archive, submit_model, with_corpus
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("models_run_here", "corpus")]


@pytest.fixture
def corpus(demo: Dataset, tmp_path: Path) -> Dataset:
    """The open dataset, its documents kept here."""
    return with_corpus(demo, tmp_path)


@pytest.fixture
def from_hub(api: Api, hub: FakeHub) -> Job:
    """A job whose model is on the hub, claimed."""
    hub.files = unzipped(static_archive())
    submit_model(api, checkpoint=None, hub_model=NAME, hub_commit=COMMIT)
    job = claim(["cpu"], "w")
    assert job is not None
    return job


def test_a_model_on_the_hub_is_fetched_once_and_kept_with_its_commit(from_hub: Job, hub: FakeHub) -> None:
    hub.files["colbert_linear.pt"] = b"pickle"
    first = fetched_checkpoint(from_hub, Lease(from_hub))
    asked = len(hub.asked)
    assert asked > 0
    assert first == fetched_checkpoint(from_hub, Lease(from_hub)) == Checkpoint.objects.get()
    assert len(hub.asked) == asked
    assert (first.hub_name, first.hub_commit) == (NAME, COMMIT)
    from_hub.refresh_from_db()
    assert from_hub.submission is not None
    assert from_hub.submission.checkpoint == first
    assert (
        "The heads in colbert_linear.pt are pickles and were not downloaded, so only the dense model is used."
        in from_hub.log
    )


def test_a_model_on_the_hub_that_is_none_is_refused_with_its_findings(from_hub: Job, hub: FakeHub) -> None:
    del hub.files["tokenizer.json"]
    with pytest.raises(InvalidRun) as refused:
        fetched_checkpoint(from_hub, Lease(from_hub))
    assert "missing_tokenizer" in {problem.code for problem in refused.value.report.errors}


def test_a_model_that_the_hub_does_not_have_is_refused(from_hub: Job, hub: FakeHub) -> None:
    hub.status = 404
    hub.files = {}
    with pytest.raises(InvalidRun) as refused:
        fetched_checkpoint(from_hub, Lease(from_hub))
    assert [problem.code for problem in refused.value.report.errors] == ["hub_missing"]


def unzipped(archive: bytes) -> dict[str, bytes]:
    """The files of a zip by name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_what_is_built_on_runs_names_them_and_its_model(api: Api, stranger: Api, tmp_path: Path) -> None:
    mine = api.submit().body["id"]
    lent = stranger.submit(run_text(depth=9), reusable="true").body["id"]
    work()
    submit_model(api, system="Both", engine="fusion", checkpoint=None, run=[mine, lent], reusable="true")
    job = claim(["cpu"], "w")
    assert job is not None
    assert job.submission is not None
    Job.objects.filter(pk=job.pk).update(state=State.SCORING)
    path = tmp_path / "fused.txt"
    path.write_text(run_text(depth=7))
    qrels = current_qrels(job.dataset)
    result = get_result(path, job, qrels)
    publish_results(job, job.submission.system, [result], qrels)
    run = Run.objects.get(system__name="Both")
    assert (run.reusable, run.built_from.count()) == (True, 2)
    assert run.metadata["made_by"]["engine"] == "fusion"
    page = stranger.client.get("/systems/both/").content.decode()
    assert "Fusion of runs" in page
    assert 'href="/systems/my-system/"' in page


def get_result(path: Path, job: Job, qrels: Qrels) -> ScoredResult:
    """A run that was retrieved for the job, stored and scored."""
    stored = store_run(path)
    return ScoredResult(stored, evaluate_run(stored, job.dataset, qrels, Lease(job).report))


def published(tmp_path: Path) -> Submission:
    """The submission of the next job, which a worker has done: its run has the documents of a good one."""
    job = claim(["cpu"], "w")
    assert job is not None
    assert job.submission is not None
    Job.objects.filter(pk=job.pk).update(state=State.SCORING)
    path = tmp_path / "made.txt"
    path.write_text(run_text(depth=7))
    qrels = current_qrels(job.dataset)
    result = get_result(path, job, qrels)
    publish_results(job, job.submission.system, [result], qrels)
    return job.submission


def test_credit_names_no_system_that_is_not_public(
    api: Api, stranger: Api, nobody: Api, signed_in: Client, tmp_path: Path
) -> None:
    probe = api.submit(system="Quiet probe", public="false").body["id"]
    lent = stranger.submit(run_text(depth=9), system="Lent one", reusable="true").body["id"]
    work()
    submit_model(api, system="Both", engine="fusion", checkpoint=None, run=[probe, lent])
    address = published(tmp_path).get_absolute_url()
    seen = nobody.client.get(address).content.decode()
    assert ("Quiet probe" in seen, "Lent one" in seen) == (False, True)
    seen = signed_in.get(address).content.decode()
    assert "Quiet probe" in seen
    assert 'href="/systems/quiet-probe/"' not in seen
    set_public(Submission.objects.get(pk=lent), public=False)
    pages = [client.get(address).content.decode() for client in (nobody.client, signed_in, stranger.client)]
    assert ["Lent one" in page for page in pages] == [False, False, False]


@pytest.mark.parametrize(
    ("setting", "offered"),
    [({}, True), ({"hidden": True}, False), ({"queries_visibility": "participants"}, False)],
)
def test_what_a_model_found_can_be_had_where_all_that_it_saw_is_open(
    api: Api, signed_in: Client, tmp_path: Path, setting: dict[str, Any], offered: bool
) -> None:
    Dataset.objects.update(runs_visibility="public", **setting)
    submit_model(api)
    submission = published(tmp_path)
    address = f"{submission.get_absolute_url()}runs/demo/"
    curator = Client()
    curator.force_login(make_a_curator("Carol"))
    for client in (signed_in, curator, Client()):
        assert client.get(address).status_code == (200 if offered else 404)
    assert (api.get(f"submissions/{submission.pk}/").body["jobs"][0]["run_url"] is not None) == offered
    page = signed_in.get(submission.get_absolute_url()).content.decode()
    assert ("only on datasets with public judgments" in page) == (not offered)


def test_folders_that_no_row_names_are_swept(alice: User, tmp_path: Path) -> None:
    path = tmp_path / "static.zip"
    path.write_bytes(static_archive(seed=1))
    named = store_checkpoint(personal_team(alice), CheckpointArchive("static.zip", path), alice)
    path.write_bytes(static_archive(seed=2))
    unnamed = store_files(personal_team(alice), CheckpointArchive("static.zip", path))
    folder = checkpoint_folder(named).with_name(unnamed.description.sha256)
    assert folder.exists()
    assert sweep_checkpoints(grace=3600) == 0
    for each in (folder, checkpoint_folder(named)):
        os.utime(each, (time.time() - 7200,) * 2)
    assert sweep_checkpoints(grace=3600) == 1
    assert (folder.exists(), checkpoint_folder(named).exists()) == (False, True)


def test_pooling_that_was_asked_for_makes_another_model(alice: User, tmp_path: Path) -> None:
    path = tmp_path / "static.zip"
    path.write_bytes(static_archive())
    team = personal_team(alice)
    kept = {store_files(team, CheckpointArchive("static.zip", path, pooling)).sha256 for pooling in ("", "mean", "cls")}
    assert len(kept) == 3


def test_variants_that_come_all_the_same_are_not_recorded_over_hidden_judgements(
    api: Api, corpus: Dataset, tmp_path: Path
) -> None:
    Dataset.objects.update(hidden=True)
    submit_model(api)
    job = claim(["cpu"], "w")
    assert job is not None
    assert job.submission is not None
    Job.objects.filter(pk=job.pk).update(state=State.SCORING)
    qrels = current_qrels(job.dataset)
    results = []
    for depth in (10, 50):
        path = tmp_path / f"{depth}.txt"
        path.write_text(run_text(depth=depth))
        results.append(replace(get_result(path, job, qrels), label=f"top {depth}"))
    (entry,) = publish_results(job, job.submission.system, results, qrels)
    assert entry.configuration == "top 50"
    assert list(corpus.entries.all()) == [entry]
    assert Run.objects.filter(system=entry.system).count() == 1


def test_depths_of_a_re_ranker_are_drawn_and_told(api: Api, tmp_path: Path) -> None:
    identifier = submit_model(api).body["id"]
    job = claim(["cpu"], "w")
    assert job is not None
    assert job.submission is not None
    Job.objects.filter(pk=job.pk).update(state=State.SCORING)
    qrels = current_qrels(job.dataset)
    results = []
    for depth in (10, 50):
        path = tmp_path / f"{depth}.txt"
        path.write_text(run_text(depth=depth, skip=2 if depth == 10 else 0))
        facts = {"dimension": 8, "depth": depth}
        results.append(replace(get_result(path, job, qrels), label=f"top {depth}", facts=facts))
    publish_results(job, job.submission.system, results, qrels)
    page = api.client.get(f"/submissions/{identifier}/").content.decode()
    assert "nDCG@10 by depth" in page
    assert "<dt>Dimension</dt><dd>8</dd>" in page
    answer = api.get(f"submissions/{identifier}/").body["jobs"][0]
    assert [variant["configuration"] for variant in answer["variants"]] == ["top 10", "top 50"]
    assert answer["facts"]["dimension"] == 8


@pytest.mark.parametrize(
    ("own", "parameters", "read"),
    [(512, {}, 512), (32_768, {}, 8_192), (32_768, {"maximum_length": 20_000}, 20_000), (None, {}, None)],
)
def test_boards_say_how_much_of_a_text_was_read(own: int | None, parameters: dict[str, int], read: int | None) -> None:
    kind = CheckpointKind.SENTENCE_ENCODER
    model = CheckpointDescription(kind, ("model",), "qwen3", 1, 1, "0" * 64, maximum_length=own)
    system = intake._complete_system(SystemFields("It", "dense"), model, parameters)
    assert system.maximum_length == read
