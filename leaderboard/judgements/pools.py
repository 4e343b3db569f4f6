"""Pools for relevance assessment: eligible runs and requests; the scorer draws them (`drawing`)."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, Q, QuerySet

from leaderboard.core.audit import actor, record
from leaderboard.core.storage.store import Area, path_of
from leaderboard.core.work_requests import request_work
from leaderboard.judgements.disclosure import downloadable_forms, record_pool_read
from leaderboard.models import Dataset, Entry, Pool, Round, Run, WorkRequest


class JudgingRefused(Exception):
    """The request is not possible and changed nothing; the message says why and what to do instead."""


class ConcurrentChange(JudgingRefused):
    """Another user changed the object in the meantime."""


#: Maximum depth of a pool, which is the depth to which runs are scored.
MAX_DEPTH = 1000
#: File formats of a pool, with their suffixes.
FORMATS = {"csv": ".csv", "trec": ".qrels", "answers": ".jsonl"}

_REMOVED = (Entry.Visibility.WITHDRAWN, Entry.Visibility.QUARANTINED, Entry.Visibility.UNPUBLISHED)


def eligible_runs(dataset: Dataset, round: Round | None = None) -> QuerySet[Run]:
    """Return the runs that a pool may use: of the current version and the round, and not removed from the board.

    They are ordered by their team's priority, then by arrival. Without a round, runs of all rounds are eligible.
    """
    is_removed = Q(evaluations__entry__visibility__in=_REMOVED) | Q(evaluations__seed__entry__visibility__in=_REMOVED)
    runs = Run.objects.filter(version=dataset.current_version_id).exclude(
        pk__in=Run.objects.filter(is_removed).values("pk")
    )
    if round is not None:
        runs = runs.filter(round=round)
    return runs.order_by(F("priority").asc(nulls_last=True), "pk").select_related("system__team")


def first_of_each_team(runs: Iterable[Run], runs_per_team: int) -> list[Run]:
    """Return the first `runs_per_team` runs of each team, or of each participant of a team, in the given order.

    The site's own runs are treated as the runs of one team.
    """
    counts: Counter[tuple[int | None, str]] = Counter()
    selected_runs = []
    for run in runs:
        if counts[run.system.contributor] < runs_per_team:
            counts[run.system.contributor] += 1
            selected_runs.append(run)
    return selected_runs


def request_pool(
    dataset: Dataset,
    *,
    depth: int = 10,
    runs: Iterable[Run] | None = None,
    runs_per_team: int | None = None,
    round: Round | None = None,
) -> Pool:
    """Request a pool of the top `depth` documents of these runs, by default of all eligible runs.

    `runs_per_team` limits the default to the first runs of each team; each participant of a team counts as a team. With
    `round`, only its runs are used, by default as many per team as it accepts. Call this within `audit.acting`. Raises
    JudgingRefused without eligible runs, and for an invalid depth.
    """
    if runs_per_team is None and round is not None:
        runs_per_team = round.runs_per_team
    pool_runs = _select_runs(dataset, runs, runs_per_team, round)
    version = dataset.current_version
    if not 1 <= depth <= MAX_DEPTH:
        raise JudgingRefused(f"The depth of a pool must be from 1 to {MAX_DEPTH:,} documents, not {depth:,}.")
    if not pool_runs or version is None:
        raise JudgingRefused(f"{dataset} has no runs to draw a pool from.")
    with transaction.atomic():
        pool = Pool.objects.create(
            dataset=dataset,
            version=version,
            round=round,
            depth=depth,
            runs_per_team=None if runs is not None else runs_per_team,
            created_by=actor().person,
        )
        pool.runs.set(pool_runs)
        _request_work(pool)
        record("pool requested", pool, dataset=dataset, after={"runs": len(pool_runs), "depth": depth})
    return pool


def _select_runs(
    dataset: Dataset, runs: Iterable[Run] | None, runs_per_team: int | None, round: Round | None
) -> list[Run]:
    """Return the eligible runs of the pool: the given ones, or the first `runs_per_team` of each team, or all.

    Raises JudgingRefused if a given run is not eligible.
    """
    candidates = eligible_runs(dataset, round)
    if runs is None:
        return first_of_each_team(candidates, runs_per_team) if runs_per_team else list(candidates)
    run_ids = {run.pk for run in runs}
    selected_runs = list(candidates.filter(pk__in=run_ids))
    if len(selected_runs) < len(run_ids):
        excluded_runs = Run.objects.filter(pk__in=run_ids - {run.pk for run in selected_runs}).select_related("system")
        raise JudgingRefused(
            "A pool cannot use runs that were removed from the board, or belong to another version or round: "
            + ", ".join(str(run.system) for run in excluded_runs)
        )
    return selected_runs


def draw_again(pool: Pool) -> None:
    """Request an undrawn pool again, after an error or a lost request. Raises JudgingRefused if it is already drawn."""
    if not Pool.objects.filter(pk=pool.pk).exclude(state=Pool.State.READY).update(state=Pool.State.DRAWING):
        raise JudgingRefused("The pool is already drawn.")
    with transaction.atomic():
        _request_work(pool)
        record("pool requested again", pool, dataset=pool.dataset_id)


def fail_pool(pool_id: int, reason: str = "") -> None:
    """Mark a pool as failed, with a reason or after an internal error."""
    pending_pools = Pool.objects.filter(pk=pool_id, state=Pool.State.DRAWING)
    pending_pools.update(state=Pool.State.FAILED, statistics={"refused": reason} if reason else {})


def record_download(pool: Pool, form: str) -> tuple[Path, str]:
    """Record a download of a pool file, and return its path and download name. Call this within `audit.acting`.

    With hidden judgments, the download is also recorded as access to judged pairs.

    Raises:
        KeyError: For an unknown format.
        PermissionDenied: For texts of hidden queries without the permission to read them.
    """
    path = path_of(Area.CURATION, pool.files[form])
    if form not in downloadable_forms(pool, actor().person):
        raise PermissionDenied
    record_pool_read(pool, form)
    record("pool downloaded", pool, dataset=pool.dataset_id, after={"form": form})
    return path, f"pool-{pool.dataset.slug}-{pool.pk}{FORMATS[form]}"


def _request_work(pool: Pool) -> None:
    request_work(WorkRequest.Kind.POOL, pool.dataset, {"pool": pool.pk})
