"""Pools to be judged: which runs they are drawn from, and asking for them. The scorer draws (`drawing`)."""

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
    """The message says what is in the way, and what would do. Nothing was changed."""


class ConcurrentChange(JudgingRefused):
    """Somebody else changed it first: look again."""


#: As deep as runs are scored.
DEEPEST = 1000
#: The forms that a pool is offered in, with how their names end.
FORMATS = {"csv": ".csv", "trec": ".qrels"}

_OFF = (Entry.Visibility.WITHDRAWN, Entry.Visibility.QUARANTINED, Entry.Visibility.UNPUBLISHED)


def eligible_runs(dataset: Dataset, round: Round | None = None) -> QuerySet[Run]:
    """Return the runs that a pool may be drawn from: of the present version, and not taken off its board.

    In order of priority within a team: the team's own order first, then by arrival.
    """
    off = Q(evaluations__entry__visibility__in=_OFF) | Q(evaluations__seed__entry__visibility__in=_OFF)
    runs = Run.objects.filter(version=dataset.current_version_id).exclude(
        pk__in=Run.objects.filter(off).values("pk")
    )
    if round is not None:
        runs = runs.filter(round=round)
    return runs.order_by(F("priority").asc(nulls_last=True), "pk").select_related("system__team")


def first_of_each_team(runs: Iterable[Run], runs_per_team: int) -> list[Run]:
    """Return the first runs of each team, or of each participant where a team names several.

    The site's own runs count as those of one team.
    """
    taken: Counter[tuple[int | None, str]] = Counter()
    chosen = []
    for run in runs:
        if taken[run.system.contributor] < runs_per_team:
            taken[run.system.contributor] += 1
            chosen.append(run)
    return chosen


def request_pool(
    dataset: Dataset,
    *,
    depth: int = 10,
    runs: Iterable[Run] | None = None,
    runs_per_team: int | None = None,
    round: Round | None = None,
) -> Pool:
    """Request a pool of the first `depth` documents of these runs, or of the first `runs_per_team` of each team.

    A participant that a team names counts as a team. With `round`, only its runs are used, by default as many per team
    as it accepts. Call it within `audit.acting`. Raises JudgingRefused where there is nothing to draw from.
    """
    if runs_per_team is None and round is not None:
        runs_per_team = round.runs_per_team
    chosen = _chosen(dataset, runs, runs_per_team, round)
    version = dataset.current_version
    if not 1 <= depth <= DEEPEST:
        raise JudgingRefused(f"A pool is 1 to {DEEPEST:,} documents deep, not {depth:,}.")
    if not chosen or version is None:
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
        pool.runs.set(chosen)
        _request_work(pool)
        record("pool requested", pool, dataset=dataset, after={"runs": len(chosen), "depth": depth})
    return pool


def _chosen(
    dataset: Dataset, runs: Iterable[Run] | None, runs_per_team: int | None, round: Round | None
) -> list[Run]:
    eligible = eligible_runs(dataset, round)
    if runs is None:
        return first_of_each_team(eligible, runs_per_team) if runs_per_team else list(eligible)
    wanted = {run.pk for run in runs}
    found = list(eligible.filter(pk__in=wanted))
    if len(found) < len(wanted):
        left_out = Run.objects.filter(pk__in=wanted - {run.pk for run in found}).select_related("system")
        raise JudgingRefused(
            "No pool can be drawn from runs that were taken off the board, or are of another version or round: "
            + ", ".join(str(run.system) for run in left_out)
        )
    return found


def draw_again(pool: Pool) -> None:
    """Ask once more for a pool that is not there: after a fault of ours, or where the request was lost."""
    if not Pool.objects.filter(pk=pool.pk).exclude(state=Pool.State.READY).update(state=Pool.State.DRAWING):
        raise JudgingRefused("The pool is drawn already.")
    with transaction.atomic():
        _request_work(pool)
        record("pool requested again", pool, dataset=pool.dataset_id)


def fail_pool(pool: int, why: str = "") -> None:
    """Say that the pool was not drawn: `why`, or a fault of ours."""
    waiting = Pool.objects.filter(pk=pool, state=Pool.State.DRAWING)
    waiting.update(state=Pool.State.FAILED, statistics={"refused": why} if why else {})


def pool_file(pool: Pool, form: str) -> tuple[Path, str]:
    """Where a file of the pool lies, and the name it is downloaded under. Raises KeyError where there is none.

    Within `audit.acting`: whoever downloads what is to be judged is recorded; of a hidden dataset as a reading of which
    pairs are judged. Raises PermissionDenied for hidden queries' texts without the right to read them.
    """
    path = path_of(Area.CURATION, pool.files[form])
    if form not in downloadable_forms(pool, actor().person):
        raise PermissionDenied
    record_pool_read(pool, form)
    record("pool downloaded", pool, dataset=pool.dataset_id, after={"form": form})
    return path, f"pool-{pool.dataset.slug}-{pool.pk}{FORMATS[form]}"


def _request_work(pool: Pool) -> None:
    request_work(WorkRequest.Kind.POOL, pool.dataset, {"pool": pool.pk})
