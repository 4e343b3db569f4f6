"""Pools drawn and judgements merged: the work of POOL and MERGE jobs. Both read judgements, so the scorer does them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import transaction

from evaluation.runs.pooling import PoolTooLarge
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import work_folder
from leaderboard.judgements import comparing
from leaderboard.judgements.drawing import draw, record_pool
from leaderboard.judgements.imports import State as ImportState
from leaderboard.judgements.imports import fail_import
from leaderboard.judgements.pools import JudgingRefused, fail_pool
from leaderboard.models import JudgementImport, Pool, User
from submissions.jobs.kinds.score import begin
from submissions.jobs.registry import register_kind
from submissions.models import Job, State
from submissions.queue.lease import Cancelled, Lease, LeaseLost, finish
from submissions.queue.lifecycle import write_log
from submissions.queue.queue import ATTEMPTS


@register_kind(Job.Kind.POOL)
def pool_job(job: Job, lease: Lease) -> None:
    """Draw the pool that the payload names. Again, nothing changes. Raises LeaseLost or Cancelled."""
    key = job.payload["pool"]
    begin(job, State.SCORING)
    with _fail_on_last_attempt(job, lambda: fail_pool(key)), work_folder("judging") as folder:
        pool = Pool.objects.select_related("dataset__current_qrels", "version", "created_by").get(pk=key)
        if pool.state != Pool.State.DRAWING:
            finish(job, "It is drawn already.")
            return
        try:
            with acting(pool.created_by):
                stored = draw(pool, folder, lease.report)
        except (PoolTooLarge, JudgingRefused) as error:
            with transaction.atomic():
                finish(job, str(error))
                fail_pool(key, str(error))
            return
        with transaction.atomic():
            finish(job, f"{stored.statistics['pairs']:,} pairs to be judged.")
            record_pool(pool, stored)


@register_kind(Job.Kind.MERGE)
def merge_job(job: Job, lease: Lease) -> None:
    """Compare or merge the judgements that the payload names, as their state says. Raises LeaseLost or Cancelled."""
    key = job.payload["import"]
    begin(job, State.SCORING)
    with _fail_on_last_attempt(job, lambda: fail_import(key)), work_folder("judging") as folder:
        related = ("dataset__current_qrels", "dataset__current_version", "version", "against")
        brought = JudgementImport.objects.select_related(*related).get(pk=key)
        person = User.objects.filter(pk=job.payload.get("by")).first()
        if brought.state == ImportState.COMPARING:
            found = comparing.compare_import(brought, folder)
            lease.check()
            with acting(person, brought.note), transaction.atomic():
                finish(job, "Compared.")
                comparing.record_comparison(brought, found)
        elif brought.state == ImportState.MERGING:
            merged = comparing.merge_import(brought, folder)
            lease.check()
            with acting(person, brought.note), transaction.atomic():
                finish(job, "Merged.")
                write_log(job.pk, comparing.record_merge(brought, merged))
        else:
            finish(job, "It has been decided in the meantime.")


@contextmanager
def _fail_on_last_attempt(job: Job, give_up: Callable[[], None]) -> Iterator[None]:
    """Say on its own page that the work failed, where it is not tried again."""
    try:
        yield
    except LeaseLost:
        raise
    except Cancelled:
        give_up()
        raise
    except Exception:
        if job.attempts >= ATTEMPTS:
            give_up()
        raise
