"""A job that kills whoever does it ends at its third attempt, is given back to its sender, and holds nobody up."""

from __future__ import annotations

import pytest

from submissions.models import Job, QuotaUse
from tests.faults.repetitions import full
from tests.faults.site import Site
from tests.faults.work import Work, ended

pytestmark = pytest.mark.database

OTHERS = 20 if full() else 3


def test_a_poisonous_job_ends_and_the_queue_flows_on(queue_site: Site, work: Work) -> None:
    queue_site.orders.poison(f"{work.person.name} 1")
    poisonous = work.submit([work.hidden])
    others = [work.submit([work.open]) for _ in range(OTHERS)]
    queue_site.wait_for(lambda: ended([poisonous, *others]), "all to end")
    job = Job.objects.get(submission=poisonous)
    assert (job.state, job.error_code, job.attempts) == ("failed", "worker_lost", 3)
    assert QuotaUse.objects.get(submission=poisonous).refund_reason == "the fault was ours"
    assert set(Job.objects.filter(submission__in=others).values_list("state", flat=True)) == {"done"}


@pytest.mark.long
def test_without_the_limit_it_never_ends(queue_site: Site, work: Work) -> None:
    queue_site.orders.do_without("attempts")
    queue_site.orders.poison(f"{work.person.name} 1")
    poisonous = work.submit([work.open])
    queue_site.wait_for(lambda: Job.objects.filter(submission=poisonous, attempts__gt=3).exists(), "the fourth attempt")
    assert not ended([poisonous])
    queue_site.orders.do_without()
    queue_site.wait_for(lambda: ended([poisonous]), "the job to end, with the limit again")


@pytest.mark.long
def test_without_the_reaper_a_killed_job_is_lost(queue_site: Site, work: Work) -> None:
    queue_site.orders.do_without("reaper")
    queue_site.orders.strike("claimed", "child")
    victim = work.submit([work.open])
    queue_site.wait_for(lambda: queue_site.orders.armed() == 0, "the worker to die")
    later = [work.submit([work.open]) for _ in range(3)]
    queue_site.wait_for(lambda: ended(later), "others to be done")
    # Far past its lease everybody else has had a turn, and it lies where it was.
    queue_site.wait_for(lambda: Job.objects.expired().filter(submission=victim), "its lease to run out")
    assert not ended([victim])
    queue_site.orders.do_without()
    queue_site.wait_for(lambda: ended([victim]), "the reaper to find it")
