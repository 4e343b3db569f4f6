"""Results of model jobs: an entry with its costs, several entries, or a clear failure."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.test import Client

from evaluation.execution.job import ExecutionJob
from leaderboard.core.storage.runs import open_run
from leaderboard.models import Dataset, Entry, Measurement, Run
from submissions.intake.checkpoints.readiness import count_model_runs
from submissions.jobs.checkpoints.embeddings import embeddings_folder
from submissions.models import Encoding, Job, Shard, State, Submission
from submissions.queue import lease as leases
from submissions.queue.queue import request_cancel
from submissions.sandbox.backends import SandboxLimits
from submissions.sandbox.running import SandboxOutcome, run_job
from tests.submissions.model_jobs import make_submission, queue_model, run_waiting
from tests.submissions.sandboxes import make_deep

pytestmark = pytest.mark.django_db


def finished(job: Job) -> Job:
    """The job after the worker did what waited."""
    run_waiting()
    job.refresh_from_db()
    return job


def run_of(entry: Entry) -> str:
    """The text of an entry's run."""
    assert entry.evaluation is not None
    with open_run(entry.evaluation.run.sha256) as text:
        return text.read().decode()


def test_a_model_becomes_a_measured_entry_beside_bm25(small: Dataset, tmp_path: Path, client: Client) -> None:
    submission = make_submission()
    job = finished(queue_model(small, submission))
    assert (job.state, job.error_code) == (State.DONE, ""), job.log
    entry = job.entry
    assert entry is not None
    assert (entry.provenance, entry.visibility) == (Entry.Provenance.MEASURED, Entry.Visibility.PUBLIC)
    assert entry.facts == {"dimension": 31, "query_prompt": ""}
    assert run_of(entry).startswith("q1 Q0 d")
    measured = entry.measurements.get()
    assert measured.figures["latency_ms"]["p50"] > 0
    assert measured.figures["documents_per_second"] > 0
    assert measured.baseline["latency_ms"]["p50"] > 0
    assert Measurement.objects.get(entry__is_baseline=True).figures == measured.baseline
    page = client.get(submission.get_absolute_url()).content.decode()
    for told in ("(p50 ", " · p95 ", " · p99 ", "BM25 took ", "<dt>Index</dt>", "<dt>Memory</dt>"):
        assert told in page
    assert "<li>variants = false</li>" in client.get(submission.system.get_absolute_url()).content.decode()
    told = client.get(f"/api/v1/submissions/{submission.pk}/").json()["jobs"][0]["efficiency"]
    assert (told["figures"], told["baseline"]) == (measured.figures, measured.baseline)
    means = [told[name]["latency_ms"]["mean"] for name in ("figures", "baseline")]
    assert told["times_bm25"] == pytest.approx(means[0] / means[1])
    assert not list((tmp_path / "var" / "work").iterdir())
    # The log does not show the submitter which worker ran the model.
    assert (job.worker, "Toy over" in job.log) == ("test-worker", True)
    assert job.worker not in job.log


@pytest.mark.long
def test_a_second_job_encodes_nothing_and_what_was_encoded_elsewhere_is_not_timed(small: Dataset) -> None:
    submission = make_submission()
    first = finished(queue_model(small, submission))
    encoding = Encoding.objects.get()
    files = list(embeddings_folder(encoding.key).rglob("*"))
    before = {path: path.stat().st_mtime_ns for path in files}
    second = finished(queue_model(small, submission))
    assert (first.state, second.state) == (State.DONE, State.DONE), second.log
    assert Encoding.objects.count() == 1
    assert {path: path.stat().st_mtime_ns for path in files} == before
    # The same run again: one entry, measured anew.
    assert second.entry is None
    assert list(second.further_entries.all()) == [first.entry]
    assert first.entry is not None
    figures = first.entry.measurements.get().figures
    assert figures["documents_per_second"] == pytest.approx(30 / encoding.shards.get().seconds)

    Shard.objects.update(hardware="another-machine")
    Submission.objects.update(configuration="again")
    job = finished(queue_model(small, submission))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert job.entry.configuration == "again"
    assert "another-machine" in job.entry.facts["hardware_mixture"].split(" + ")
    assert not job.entry.measurements.exists()


def test_each_variant_is_an_entry_of_its_own_beside_bm25_over_word_pieces_where_there_is_one(
    small: Dataset, client: Client
) -> None:
    submission = make_submission(variants=True)
    job = finished(queue_model(small, submission))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    further = job.further_entries.get()
    assert (further.configuration, job.entry.configuration) == ("top 2", "top 5")
    assert (further.facts["depth"], job.entry.facts["depth"]) == (2, 5)
    assert run_of(further).count("\n") == 4
    assert run_of(job.entry).count("\n") == 10
    timed = [entry.measurements.get().figures["searches"] for entry in (further, job.entry)]
    assert timed == [50, 200]
    assert "bm25-wordpiece" not in client.get(submission.get_absolute_url()).content.decode()
    value = job.entry.scores["nDCG@10"]
    further.configuration, further.scores = "bm25-wordpiece", {**further.scores, "nDCG@10": value / 2}
    further.save()
    page = client.get(submission.get_absolute_url()).content.decode()
    assert '<th scope="col" class="n">bm25-wordpiece</th>' in page
    assert "+100.0%" in page
    client.force_login(submission.team.members.get())
    [answer] = client.get(f"/api/v1/submissions/{submission.pk}/").json()["jobs"]
    assert answer["deltas"]["bm25-wordpiece"]["nDCG@10"] == pytest.approx(value / 2)
    assert set(answer["deltas"]) == {"baseline", "bm25-wordpiece"}


def test_over_hidden_judgements_a_job_is_one_reading_of_them(small: Dataset, client: Client) -> None:
    Dataset.objects.update(hidden=True)
    submission = make_submission(variants=True)
    job = finished(queue_model(small, submission))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert list(job.further_entries.all()) == []
    assert list(small.entries.exclude(is_baseline=True)) == [job.entry]
    assert list(Run.objects.filter(system=submission.system)) == [job.entry.evaluation.run]  # type: ignore[union-attr]
    assert "hidden: only the main configuration" in job.log
    assert "only the main result is computed" in client.get(submission.get_absolute_url()).content.decode()


def test_a_fused_run_names_what_it_was_made_of(small: Dataset, client: Client) -> None:
    bm25 = Run.objects.get(system__slug="bm25")
    own = make_submission("One").system
    again = Run.objects.create(version=bm25.version, system=own, sha256=bm25.sha256, size=bm25.size)
    runs = [bm25.pk, again.pk]
    submission = make_submission("Fused")
    submission.engine, submission.checkpoint, submission.reusable = "fusion", None, True
    submission.parameters = {}
    submission.save()
    job = finished(queue_model(small, submission, run_ids=runs))
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    assert job.entry.evaluation is not None
    run = job.entry.evaluation.run
    assert run.reusable
    assert set(run.built_from.values_list("pk", flat=True)) == set(runs)
    figures = job.entry.measurements.get().figures
    assert figures["stored_runs"] == 2
    assert [figures[name] for name in ("documents_per_second", "build_seconds", "index_bytes")] == [None] * 3
    page = client.get(submission.get_absolute_url()).content.decode()
    assert "starts from stored runs: the first search was not timed" in page


@pytest.mark.parametrize(
    ("wrong", "code", "found"),
    [
        ("not_finite", "not_finite_output", "an infinite or undefined value"),
        ("memory", "out_of_memory", "more memory"),
    ],
)
def test_a_model_that_fails_is_rejected_with_what_would_be_right(
    small: Dataset, wrong: str, code: str, found: str
) -> None:
    job = finished(queue_model(small, make_submission(wrong=wrong)))
    assert (job.state, job.error_code) == (State.REJECTED, code)
    (problem,) = job.report["problems"]
    assert problem["code"] == code
    assert found in problem["message"]
    assert "d1" not in problem["message"]
    assert problem["hint"]
    assert not Encoding.objects.exists()


def test_a_model_that_takes_too_long_is_stopped(small: Dataset, settings: Any) -> None:
    settings.MODEL_WALL_CLOCK_SECONDS = 1
    job = finished(queue_model(small, make_submission(wrong="hang")))
    assert (job.state, job.error_code) == (State.TIMED_OUT, "timed_out")
    assert job.report["problems"][0]["hint"]
    assert not children()


@pytest.mark.parametrize(("wrong", "seconds", "told"), [("hang", 0.5, "timed_out"), ("memory", 60.0, "crashed")])
def test_a_run_is_published_whatever_becomes_of_measuring(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, wrong: str, seconds: float, told: str
) -> None:
    limits = SandboxLimits.from_settings()
    short = staticmethod(lambda: replace(limits, measuring_seconds=seconds))
    monkeypatch.setattr(SandboxLimits, "from_settings", short)
    job = finished(queue_model(small, make_submission(wrong=f"{wrong} when timed")))
    assert (job.state, job.error_code) == (State.DONE, ""), job.log
    assert job.entry is not None
    assert run_of(job.entry).startswith("q1 Q0 d")
    assert not job.entry.measurements.exists()
    assert f"Toy was not timed: the measurement failed ({told})." in job.log


def test_bm25_is_measured_only_while_the_job_has_time_left(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    def run_for_hours(backend: Any, work: ExecutionJob, limits: SandboxLimits, *given: Any) -> SandboxOutcome:
        outcome = run_job(backend, work, limits, *given)
        settings.JOB_WALL_CLOCK_SECONDS = 1
        return outcome

    monkeypatch.setattr(leases, "CHECK_INTERVAL", 60.0)  # whoever looks meanwhile would end the job
    monkeypatch.setattr("submissions.jobs.checkpoints.running.run_job", run_for_hours)
    job = finished(queue_model(small, make_submission()))
    assert job.state == State.DONE, job.log
    assert "BM25 could not be measured (ModelTimedOut)" in job.log
    assert job.entry is not None
    assert not job.entry.measurements.get().baseline


def test_a_model_that_crashes_is_tried_once_more_and_counts(small: Dataset) -> None:
    submission = make_submission(wrong="crash")
    job = finished(queue_model(small, submission))
    assert (job.state, job.error_code, job.attempts) == (State.REJECTED, "crashed", 2), job.log
    assert "ended unexpectedly" in job.report["problems"][0]["message"]
    assert job.log.count("The job is retried once.") == 1
    assert count_model_runs(submission.team).used == 1


def test_what_our_own_process_does_wrong_is_tried_three_times_and_not_counted(
    small: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("a disk of ours")

    monkeypatch.setattr("submissions.jobs.checkpoints.running.run_job", fail)
    submission = make_submission()
    job = finished(queue_model(small, submission))
    assert (job.state, job.attempts) == (State.QUEUED, 2)
    Job.objects.update(not_before=None)
    job = finished(job)
    assert (job.state, job.error_code) == (State.FAILED, "fault")
    assert count_model_runs(submission.team).used == 0


def test_the_next_attempt_goes_on_behind_what_was_found(
    unmeasured: None, small: Dataset, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    job = queue_model(small, make_submission())

    def lose(*_: Any) -> None:
        raise RuntimeError("the host is lost")

    with monkeypatch.context() as patch:
        patch.setattr("submissions.jobs.checkpoints.run_model._store_runs", lose)
        finished(job)
    Job.objects.update(not_before=None)
    kept = settings.VAR / "work" / f"rankings-{job.pk}"
    [found] = kept.rglob("*.json")
    document = json.loads(found.read_bytes())
    _, documents, _ = document["rankings"][0][""]
    documents.reverse()  # what the next attempt publishes tells whether it has searched again
    document["seconds"] = 3_600.0  # longer than the next attempt runs
    found.write_text(json.dumps(document))
    job = finished(job)
    assert job.state == State.DONE, job.log
    assert job.entry is not None
    published = [line.split()[2] for line in run_of(job.entry).splitlines() if line.startswith("q1 ")]
    assert published == documents
    assert not kept.exists()


@pytest.mark.long
def test_what_nobody_can_walk_through_is_not_kept(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_and_dig(backend: Any, work: ExecutionJob, *given: Any) -> SandboxOutcome:
        outcome = run_job(backend, work, *given)
        if work.shards is not None:
            make_deep(work.shards / "00000")
            make_deep(work.shards)
        return outcome

    monkeypatch.setattr("submissions.jobs.checkpoints.running.run_job", run_and_dig)
    job = finished(queue_model(small, make_submission()))
    assert job.state == State.DONE, job.log
    assert not Shard.objects.exists()
    assert not list((tmp_path / "var" / "work").iterdir())


def children() -> list[int]:
    """Processes that this one has started and that run still."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, perhaps unasked how
            if "evaluation.execution" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@pytest.fixture
def hanging(
    transactional_db: None, small: Dataset, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Job, threading.Thread]]:
    """A job whose child hangs, worked at by a thread."""
    monkeypatch.setattr("submissions.queue.lease.CHECK_INTERVAL", 0.1)
    job = queue_model(small, make_submission(wrong="hang"))
    thread = threading.Thread(target=run_waiting)
    thread.start()
    deadline = time.monotonic() + 120
    while not children():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield job, thread
    thread.join(30)


def test_a_wish_to_cancel_ends_the_child(hanging: tuple[Job, threading.Thread]) -> None:
    job, thread = hanging
    assert request_cancel(job)
    thread.join(30)
    job.refresh_from_db()
    assert job.state == State.CANCELLED
    assert not children()


def test_a_lost_lease_ends_the_child_and_writes_nothing(hanging: tuple[Job, threading.Thread]) -> None:
    job, thread = hanging
    Job.objects.filter(pk=job.pk).update(fence=99, worker="heir")
    thread.join(30)
    job.refresh_from_db()
    assert (job.state, job.worker) == (State.RETRIEVING, "heir")
    assert not children()


def test_a_worker_asked_to_stop_takes_its_child_along(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    job = queue_model(small, make_submission(wrong="hang"))

    def stop(*_: Any) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        with pytest.raises(SystemExit):
            run_waiting()
    finally:
        signal.signal(signal.SIGALRM, before)
    job.refresh_from_db()
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert not children()
