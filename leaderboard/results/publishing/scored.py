"""Results scored here, on their board: single ones and seed sets, with what it says of how their runs came."""

from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Evaluation, Pool, Seed
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.pooled import fed_pools
from leaderboard.results.publishing.publication import decide_publication, update_shown
from leaderboard.results.publishing.visibility import name_baseline, take_over_baseline
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import (
    PublishedResult,
    comparison_group,
    published_result,
    score_result,
    training_exposure,
)

#: How many runs one seed set may have: fewer have no deviation.
SEEDS = range(2, 6)


def publish_entry(
    entry: Entry,
    evaluations: Evaluation | Mapping[str, Evaluation],
    *,
    is_baseline: bool = False,
    held: Dataset | None = None,
) -> Entry:
    """Show a result on its dataset's board, or keep it for its team. Publishing it again changes nothing.

    Several evaluations, by seed, are a seed set: its mean and deviation are published once all of its runs are scored.
    A result over hidden judgements may come back HELD, without scores: the Ladder keeps it back, for now or for good.

    Args:
        entry: Unsaved, with its provenance, `public_wanted`, and what its submission says. The other columns of a
            result follow from its evaluations; a set has its own configuration.
        is_baseline: Make the entry the baseline of its group, unless it is the site's own retrieval (MEASURED) and a
            curator named another run.
        held: The dataset's row as `lock_board` returned it, if the caller's transaction has locked the board.

    Raises:
        ValueError: For runs that are no set: of too few or too many seeds, several systems, or not comparable.
    """
    labels: list[str] = []
    if isinstance(evaluations, Evaluation):
        scored, column = [evaluations], "evaluation"
        entry.evaluation, entry.configuration = evaluations, evaluations.run.configuration
    else:
        labels, scored, column = list(evaluations), list(evaluations.values()), "seeds__evaluation"
        _check_seed_set(scored)
        entry.seed_count = len(scored)
    # A refusal above leaves the transaction of the caller intact.
    with transaction.atomic(savepoint=False):
        # Of two who publish the same result at once the second finds it.
        dataset = held or lock_board(scored[0].run.version.dataset_id)
        known = Entry.objects.filter(**{f"{column}__in": scored}).first()
        if known is not None:
            return known
        pools = Pool.objects.filter(state=Pool.State.READY, runs__in=[each.run_id for each in scored])
        # One query where no run fed a pool, as of new runs.
        entry.pooled = pools.exists() and any(
            fed_pools(each.qrels).filter(runs=each.run_id).exists() for each in scored
        )
        published = _save_scored(entry, dataset, scored)
        Seed.objects.bulk_create(
            Seed(
                entry=entry,
                evaluation=evaluation,
                label=label,
                scores=scores,
                published_at=entry.published_at,
            )
            for label, evaluation, scores in zip(labels, scored, published.seed_scores, strict=False)
        )
        _place_on_board(entry, dataset, is_baseline=is_baseline)
        return entry


def _check_seed_set(evaluations: Sequence[Evaluation]) -> None:
    if len(evaluations) not in SEEDS:
        raise ValueError(f"a seed set has {SEEDS.start} to {SEEDS.stop - 1} runs, not {len(evaluations)}")
    if len({each.run.system_id for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one system")
    if len({comparison_group(each) for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one version, judgements and measures")


def _save_scored(entry: Entry, dataset: Dataset, evaluations: Sequence[Evaluation]) -> PublishedResult:
    """Save a new entry with its published values, or without them if it is not published yet."""
    published = score_result(evaluations, dataset)
    is_published, entry.due_at = decide_publication(dataset, evaluations, published.scores, entry.submitter)
    entry.visibility = Entry.Visibility.PUBLIC if entry.public_wanted else Entry.Visibility.PRIVATE
    if not is_published:
        entry.visibility = Entry.Visibility.HELD
        published = published_result(evaluations, dataset, held=True)
    entry.dataset, entry.system = dataset, evaluations[0].run.system
    entry.scores, entry.deviations, _ = published
    entry.comparison_group = comparison_group(evaluations[0])
    entry.training = training_exposure(entry.system, dataset)
    # What a reader of a hidden board may learn stops at the scores. Of a seed set it is the seed that misses most.
    entry.missing_queries = None if dataset.hidden else max(each.missing_queries for each in evaluations)
    entry.published_at = timezone.now()
    entry.save(force_insert=True)
    return published


def _place_on_board(entry: Entry, dataset: Dataset, *, is_baseline: bool) -> None:
    """Count the change of the board that shows the new entry, and let it be the baseline if it is to be."""
    public = Entry.Visibility.PUBLIC
    group = Entry.objects.filter(dataset=dataset, comparison_group=entry.comparison_group)
    present = group.filter(is_baseline=True, visibility=public).first() if is_baseline else None
    if is_baseline and present is None:
        entry.is_baseline = True
        entry.save(update_fields=["is_baseline"])
    keep_least_difference(dataset, scorer=True)
    if entry.visibility == public:
        moved = update_shown(dataset) if entry.system.team_id is not None else set()
        if entry.pk in moved:
            entry.refresh_from_db(fields=["visibility"])
        board_changed(dataset, Kind.PUBLISHED, entry, {entry.pk, *moved})
    if present is not None:
        measured = entry.provenance == Entry.Provenance.MEASURED
        made_again = measured and present.system_id == entry.system_id
        if made_again:
            Entry.objects.filter(pk=present.pk).update(visibility=Entry.Visibility.SUPERSEDED)
        if made_again or not measured:
            name_baseline(entry)
            entry.refresh_from_db(fields=["is_baseline"])
    elif entry.visibility == public and not is_baseline:
        take_over_baseline(entry)


def mark_pooled(dataset: Dataset) -> int:
    """Mark the results whose runs fed a pool of the present judgements, and those alone; returns how many changed.

    For whoever moves a board to other judgements, in that transaction, before it counts the change.
    """
    qrels = Dataset.objects.select_related("current_qrels").get(pk=dataset.pk).current_qrels
    if qrels is None:
        return 0
    runs = fed_pools(qrels).values("runs")
    fed = Q(evaluation__run__in=runs) | Q(seeds__evaluation__run__in=runs)
    entries = Entry.objects.filter(dataset=dataset)
    pooled = set(entries.filter(fed).values_list("pk", flat=True))
    changed = entries.filter(pk__in=pooled, pooled=False).update(pooled=True)
    return changed + entries.filter(pooled=True).exclude(pk__in=pooled).update(pooled=False)
