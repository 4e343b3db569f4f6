"""States move by the table, and one caller wins."""

from __future__ import annotations

import pytest

from submissions.models import TERMINAL, Job, State
from submissions.queue.queue import TRANSITIONS, advance, submission_state, write_log
from tests.factories import make_dataset, make_job

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.mark.parametrize("start", list(State))
@pytest.mark.parametrize("to", list(State))
def test_advance_follows_the_table(start: State, to: State) -> None:
    job = make_job(make_dataset(), state=start)
    assert advance(job.pk, to) == (to in TRANSITIONS[start])


def test_a_stale_fence_moves_nothing() -> None:
    job = make_job(make_dataset(), state=State.SCORING, fence=2)
    assert not advance(job.pk, State.DONE, fence=1)
    assert advance(job.pk, State.DONE, fence=2)


def test_every_state_that_is_not_terminal_can_end() -> None:
    for state in State:
        followers = TRANSITIONS[state]
        assert (followers <= {State.WITHDRAWN}) if state in TERMINAL else (State.CANCELLED in followers)


def test_ending_a_job_frees_its_lease_and_notes_the_time() -> None:
    job = make_job(make_dataset(), state=State.SCORING, stage="x")
    advance(job.pk, State.DONE)
    job.refresh_from_db()
    assert job.finished_at is not None
    assert job.lease_expires_at is None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["done", "rejected"], State.DONE),
        (["done", "queued"], State.QUEUED),
        (["scoring", "validating"], State.VALIDATING),
        (["rejected", "failed"], State.FAILED),
        (["cancelled", "rejected"], State.REJECTED),
        (["withdrawn", "withdrawn"], State.WITHDRAWN),
    ],
)
def test_a_submission_is_in_the_state_its_jobs_say(states: list[str], expected: State) -> None:
    assert submission_state(states) == expected


def test_the_log_keeps_its_lines_in_order() -> None:
    job = make_job(make_dataset(), state=State.QUEUED)
    write_log(job.pk, "first")
    write_log(job.pk, "second")
    job.refresh_from_db()
    assert [line[10:] for line in job.log.splitlines()] == ["first", "second"]
    assert Job.objects.get().log.count("\n") == 2
