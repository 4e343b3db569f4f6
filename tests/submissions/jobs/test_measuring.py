"""Repeated measurements: a job runs the model of a result once more and publishes no other score."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, BoardChange, Dataset, Entry, Evaluation, Measurement, Run, User
from submissions.jobs.changes import CannotMeasure, request_measurement
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from tests.factories import make_user
from tests.submissions.jobs.test_model_jobs import finished
from tests.submissions.model_jobs import make_submission, queue_model, run_waiting

pytestmark = pytest.mark.django_db


def make_old(entry: Entry) -> Measurement:
    """Return the entry's measurement, changed to what no measurement of these tests can be."""
    measurement = entry.measurements.get()
    measurement.figures["latency_ms"] = {"mean": 9e6, "p50": 9e6, "p95": 9e6, "p99": 9e6}
    measurement.save()
    return measurement


def latency(entry: Entry) -> float:
    """Return the entry's mean latency."""
    return float(entry.measurements.get().figures["latency_ms"]["mean"])


def counts() -> tuple[int, int, int]:
    """Count the entries, runs, and evaluations that there are."""
    return Entry.objects.count(), Run.objects.count(), Evaluation.objects.count()


def test_a_curator_has_the_costs_of_a_result_and_its_variants_measured_again(small: Dataset) -> None:
    done = finished(queue_model(small, make_submission(variants=True)))
    assert done.entry is not None
    further = done.further_entries.get()
    for entry in (done.entry, further):
        make_old(entry)
    before, person, out = counts(), make_user("Carol", is_staff=True), StringIO()
    call_command("measure_again", str(done.entry.pk), by=person.email, why="the machine was busy", stdout=out)
    job = Job.objects.latest("pk")
    assert f"Job {job.pk} measures" in out.getvalue()
    assert latency(done.entry) == 9e6, "the old costs stay until the new ones are there"
    run_waiting()
    job.refresh_from_db()
    assert (job.state, job.submission) == (State.DONE, None), job.log
    assert latency(done.entry) < 9e6
    assert latency(further) < 9e6
    assert counts() == before
    assert BoardChange.objects.filter(dataset=small, kind="measured").exists()
    assert done.submission is not None
    assert list(done.submission.jobs.all()) == [done], "its submission's page stays as it was"
    [record] = AuditRecord.objects.filter(action="measurement requested")
    assert (record.reason, record.entry_id) == ("the machine was busy", done.entry.pk)


def test_a_scorer_records_the_costs_where_retrievers_have_no_judgements(small: Dataset, settings: Any) -> None:
    done = finished(queue_model(small, make_submission()))
    assert done.entry is not None
    make_old(done.entry)
    job = request_measurement(done.entry)
    settings.PRIVATE_STORAGE = False
    run_waiting()
    job.refresh_from_db()
    assert (job.queue, job.state) == (Job.Queue.SCORE, State.QUEUED), job.log
    assert latency(done.entry) == 9e6
    settings.PRIVATE_STORAGE = True
    drain_queue("score", "test-worker")
    job.refresh_from_db()
    assert job.state == State.DONE, job.log
    assert latency(done.entry) < 9e6


def test_results_without_a_model_and_pending_measurements_are_refused(small: Dataset) -> None:
    with pytest.raises(CannotMeasure, match="not produced by a model that ran here"):
        request_measurement(small.entries.get(is_baseline=True))
    done = finished(queue_model(small, make_submission()))
    assert done.entry is not None
    request_measurement(done.entry)
    with pytest.raises(CannotMeasure, match="already being measured"):
        request_measurement(done.entry)
    Job.objects.filter(payload__measures=done.entry.pk).update(state=State.DONE)
    done.entry.visibility = Entry.Visibility.WITHDRAWN
    with pytest.raises(CannotMeasure, match="was withdrawn"):
        request_measurement(done.entry)
    with pytest.raises(CommandError, match="not produced by a model"):
        call_command("measure_again", "small/bm25", by=make_user("Carol").email, why="for a test")


def test_a_curator_asks_in_the_admin(small: Dataset, client: Client) -> None:
    done = finished(queue_model(small, make_submission()))
    assert done.entry is not None
    client.force_login(User.objects.create_superuser("curator@example.org", "a long passphrase"))
    chosen = {"action": "measure_again", "_selected_action": [done.entry.pk]}
    page = client.post("/admin/leaderboard/entry/", chosen)
    assert "Measure costs again" in page.content.decode()
    client.post("/admin/leaderboard/entry/", {**chosen, "confirmed": "yes", "why": "it was busy"})
    assert Job.objects.filter(payload__measures=done.entry.pk, state=State.QUEUED).count() == 1
