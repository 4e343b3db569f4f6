"""Relations between pools and scores: the pools behind a set of qrels, and leave-one-team-out scores."""

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
    """Return the pools whose judgments are part of these qrels.

    These are the pools of the imports merged into these qrels and their predecessors. Without such imports, every
    earlier pool of the version counts.
    """
    merged_ids: list[int] = []
    ancestor: Qrels | None = qrels
    while ancestor is not None:
        merged_ids.append(ancestor.pk)
        ancestor = ancestor.made_from
    imports = JudgementImport.objects.filter(qrels__in=merged_ids, state=JudgementImport.State.MERGED)
    condition = Q(imports__in=imports)
    if not imports.exists():
        condition = Q(version=qrels.version_id, created_at__lt=qrels.created_at)
    return Pool.objects.filter(condition, state=Pool.State.READY).distinct()


def get_pool_runs(pool: Pool) -> QuerySet[Run]:
    return Run.objects.filter(pools=pool).select_related("system").order_by("pk")


def left_out_scores(
    qrels: Qrels,
    measure: str,
    entries: Collection[int],
    known_scores: Mapping[int, float],
    progress: Callable[[float], object] = lambda share: None,
) -> tuple[Mapping[int, float], str]:
    """Compute scores of entries without the documents that only their own team contributed to the pools.

    Entries without a known score are omitted if their team fed no pool or their runs are no longer stored. Runs in the
    scorer, for open judgments only. The site's own systems count as one team, as in pools; each participant of a team
    counts separately. `known_scores` were computed earlier on these qrels. `progress` receives the fraction done and
    may raise to stop the work.

    Returns:
        Scores by entry id, and an empty text. If runs that fed a pool are no longer stored, no scores and the reason.
    """
    contributions = [
        (run.system.contributor, run, pool) for pool in fed_pools(qrels).order_by("pk") for run in get_pool_runs(pool)
    ]
    teams = {team for team, _, _ in contributions}
    rows = Entry.objects.filter(pk__in=entries).exclude(pk__in=known_scores).select_related("system", "evaluation__run")
    ordered_rows = rows.order_by("system__team", "system__participant", "pk")
    pending_entries = [
        seed for seed in ordered_rows.prefetch_related("seeds__evaluation__run") if seed.system.contributor in teams
    ]
    if not pending_entries:
        return {pk: known_scores[pk] for pk in entries if pk in known_scores}, ""
    if missing_runs := sum(not run_path(run.sha256).exists() for _, run, _ in contributions):
        verb = "is" if missing_runs == 1 else "are"
        return (
            {},
            f"{missing_runs} of the {len(contributions)} runs that fed the pool {verb} no longer stored",
        )
    target, first_qrels = scoring_target(qrels.version, qrels=qrels), contributions[0][2].qrels
    full_qrels = load_qrels(qrels)
    sole_documents = sole_finds(
        ((team, run_path(run.sha256), pool.depth) for team, run, pool in contributions),
        target,
        load_qrels(first_qrels) if first_qrels is not None else None,
    )
    reduced_qrels: dict[Hashable, judged.Qrels] = {}
    scores: dict[int, float] = {}
    for entry in pending_entries:
        team = entry.system.contributor
        if team not in reduced_qrels:
            reduced_qrels = {team: full_qrels.without_pairs(sole_documents.get(team, {}))}
        team_target = replace(target, qrels=reduced_qrels[team], hidden=False)
        paths = [run_path(seed.run.sha256) for seed in entry_evaluations(entry)]
        progress(len(scores) / len(pending_entries))
        if all(path.exists() for path in paths):
            scores[entry.pk] = fmean(score_run(path, team_target, [measure]).means[measure] for path in paths)
    return scores | {pk: known_scores[pk] for pk in entries if pk in known_scores}, ""
