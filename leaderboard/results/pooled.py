"""What pools have to do with scores: which pools made the judgements, and what a team owes to having fed them."""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from statistics import fmean

from django.db.models import Q, QuerySet

from evaluation.judgements import qrels as judged
from evaluation.runs.pooling import sole_finds
from evaluation.runs.score import score_run
from leaderboard.core.storage.runs import run_path
from leaderboard.datasets.qrels import load_qrels, scoring_target
from leaderboard.models import Entry, JudgementImport, Pool, Qrels, Run
from leaderboard.results.records import entry_evaluations


def fed_pools(qrels: Qrels) -> QuerySet[Pool]:
    """The pools whose judgements these are, or are part of them.

    Of judgements that were merged here that is known; of those that came with an import of the collection every pool
    counts that was there before.
    """
    merged: list[int] = []
    one: Qrels | None = qrels
    while one is not None:
        merged.append(one.pk)
        one = one.made_from
    imports = JudgementImport.objects.filter(qrels__in=merged, state=JudgementImport.State.MERGED)
    known = Q(imports__in=imports)
    if not imports.exists():
        known = Q(version=qrels.version_id, created_at__lt=qrels.created_at)
    return Pool.objects.filter(known, state=Pool.State.READY).distinct()


def runs_of(pool: Pool) -> QuerySet[Run]:
    """The runs that fed a pool."""
    return Run.objects.filter(pools=pool).select_related("system").order_by("pk")


def left_out_scores(
    qrels: Qrels,
    measure: str,
    entries: Collection[int],
    known: Mapping[int, float],
    progress: Callable[[float], object] = lambda share: None,
) -> tuple[Mapping[int, float], str]:
    """Leave one team out: the scores of entries whose team fed a pool, without the documents that it alone brought in.

    Of open judgements, for the scorer. `known` are scores that were found on these judgements before. Nothing where
    no pool was fed. Systems of the site itself count as one team's, as in pools; where a team sent runs of several
    participants, each of these is one. `progress` is called now and then, and may raise. The text says why there are no
    scores if runs that fed a pool are no longer stored.
    """
    fed = [
        (run.system.contributor, run, pool)
        for pool in fed_pools(qrels).order_by("pk")
        for run in runs_of(pool)
    ]
    teams = {team for team, _, _ in fed}
    rows = (
        Entry.objects.filter(pk__in=entries).exclude(pk__in=known).select_related("system", "evaluation__run")
    )
    of_teams = rows.order_by("system__team", "system__participant", "pk")
    missing = [
        each
        for each in of_teams.prefetch_related("seeds__evaluation__run")
        if each.system.contributor in teams
    ]
    if not missing:
        return {pk: known[pk] for pk in entries if pk in known}, ""
    if gone := sum(not run_path(run.sha256).exists() for _, run, _ in fed):
        are = "is" if gone == 1 else "are"
        return {}, f"{gone} of the {len(fed)} runs that fed the pool {are} not stored any more"
    target, first = scoring_target(qrels.version, qrels=qrels), fed[0][2].qrels
    present = load_qrels(qrels)
    found = sole_finds(
        ((team, run_path(run.sha256), pool.depth) for team, run, pool in fed),
        target,
        load_qrels(first) if first is not None else None,
    )
    without: dict[Hashable, judged.Qrels] = {}
    scores: dict[int, float] = {}
    for entry in missing:
        team = entry.system.contributor
        if team not in without:
            without = {team: present.without_pairs(found.get(team, {}))}
        against = replace(target, qrels=without[team], hidden=False)
        paths = [run_path(each.run.sha256) for each in entry_evaluations(entry)]
        progress(len(scores) / len(missing))
        if all(path.exists() for path in paths):
            scores[entry.pk] = fmean(score_run(path, against, [measure]).means[measure] for path in paths)
    return scores | {pk: known[pk] for pk in entries if pk in known}, ""
