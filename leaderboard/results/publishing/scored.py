"""Publication of scored results: single runs and seed sets, with the provenance of their runs."""

from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Evaluation, Pool, Seed
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.pooled import fed_pools
from leaderboard.results.publishing.publication import decide_publication, update_shown
from leaderboard.results.publishing.visibility import name_baseline, take_over_baseline
from leaderboard.results.reported_facts import stated_costs
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import (
    PublishedResult,
    comparison_group,
    published_result,
    score_result,
    training_exposure,
)

#: Allowed sizes of a seed set; a single run has no deviation.
SEEDS = range(2, 6)


def publish_entry(
    entry: Entry,
    evaluations: Evaluation | Mapping[str, Evaluation],
    *,
    is_baseline: bool = False,
    locked_dataset: Dataset | None = None,
) -> Entry:
    """Publish a result on its dataset's board, or store it privately for its team; publishing again changes nothing.

    A result with hidden judgments may be returned as HELD, without scores, if the Ladder does not publish it.

    Args:
        entry: Unsaved, with its provenance, `public_wanted`, and the submission's metadata. The other columns follow
            from the evaluations; a seed set has its own configuration.
        evaluations: One evaluation, or those of a seed set by seed. A set's mean and deviation are published once all
            of its runs are scored.
        is_baseline: Make the entry the baseline of its group, unless it is the site's own retrieval (MEASURED) and a
            curator selected another run.
        locked_dataset: The dataset as returned by `lock_board`, if the caller's transaction has locked the board.

    Raises:
        ValueError: For an invalid seed set: too few or too many seeds, several systems, or runs that are not
            comparable.
    """
    labels: list[str] = []
    if isinstance(evaluations, Evaluation):
        evaluation_list, column = [evaluations], "evaluation"
        entry.evaluation, entry.configuration = evaluations, evaluations.run.configuration
    else:
        labels, evaluation_list, column = list(evaluations), list(evaluations.values()), "seeds__evaluation"
        _check_seed_set(evaluation_list)
        entry.seed_count = len(evaluation_list)
    # A ValueError above leaves the caller's transaction intact.
    with transaction.atomic(savepoint=False):
        # With the board locked, the second of two concurrent publications finds the first.
        dataset = locked_dataset or lock_board(evaluation_list[0].run.version.dataset_id)
        existing_entry = Entry.objects.filter(**{f"{column}__in": evaluation_list}).first()
        if existing_entry is not None:
            return existing_entry
        pools = Pool.objects.filter(
            state=Pool.State.READY, runs__in=[evaluation.run_id for evaluation in evaluation_list]
        )
        # New runs have fed no pool, so usually the first query decides.
        entry.pooled = pools.exists() and any(
            fed_pools(evaluation.qrels).filter(runs=evaluation.run_id).exists() for evaluation in evaluation_list
        )
        result = _save_scored(entry, dataset, evaluation_list)
        Seed.objects.bulk_create(
            Seed(
                entry=entry,
                evaluation=evaluation,
                label=label,
                scores=scores,
                published_at=entry.published_at,
            )
            for label, evaluation, scores in zip(labels, evaluation_list, result.seed_scores, strict=False)
        )
        _place_on_board(entry, dataset, is_baseline=is_baseline)
        return entry


def _check_seed_set(evaluations: Sequence[Evaluation]) -> None:
    """Raise ValueError for too few or too many runs, for several systems, or for runs that are not comparable."""
    if len(evaluations) not in SEEDS:
        raise ValueError(f"a seed set has {SEEDS.start} to {SEEDS.stop - 1} runs, not {len(evaluations)}")
    if len({evaluation.run.system_id for evaluation in evaluations}) > 1:
        raise ValueError("all runs of a seed set must belong to one system")
    if len({comparison_group(evaluation) for evaluation in evaluations}) > 1:
        raise ValueError("all runs of a seed set must have the same dataset version, judgments, and measures")


def _save_scored(entry: Entry, dataset: Dataset, evaluations: Sequence[Evaluation]) -> PublishedResult:
    """Complete and save a new entry, HELD if it is not published now, and return its published values.

    A held entry has no scores.
    """
    result = score_result(evaluations, dataset)
    is_published, entry.due_at = decide_publication(dataset, evaluations, result.scores, entry)
    entry.visibility = Entry.Visibility.PUBLIC if entry.public_wanted else Entry.Visibility.PRIVATE
    if not is_published:
        entry.visibility = Entry.Visibility.HELD
        result = published_result(evaluations, dataset, is_held=True)
    entry.dataset, entry.system = dataset, evaluations[0].run.system
    entry.scores, entry.deviations, _ = result
    entry.comparison_group = comparison_group(evaluations[0])
    entry.training = training_exposure(entry.system, dataset)
    if len(evaluations) == 1:
        run = evaluations[0].run
        entry.figures = stated_costs(run.metadata, run.version.statistics.get("queries"))
    # With hidden judgments only scores are published. For a seed set, count the seed with most missing queries.
    entry.missing_queries = None if dataset.hidden else max(evaluation.missing_queries for evaluation in evaluations)
    entry.published_at = timezone.now()
    entry.save(force_insert=True)
    return result


def _place_on_board(entry: Entry, dataset: Dataset, *, is_baseline: bool) -> None:
    """Record the board change for a new public entry, and make it the baseline if requested.

    If the board has a public baseline, the site's own retrieval replaces only one of the same system, which is
    superseded. A team's entry also becomes the baseline if `take_over_baseline` allows it.
    """
    public_state = Entry.Visibility.PUBLIC
    group = Entry.objects.filter(dataset=dataset, comparison_group=entry.comparison_group)
    current_baseline = group.filter(is_baseline=True, visibility=public_state).first() if is_baseline else None
    if is_baseline and current_baseline is None:
        entry.is_baseline = True
        entry.save(update_fields=["is_baseline"])
    keep_least_difference(dataset, scorer=True)
    if entry.visibility == public_state:
        moved_ids = update_shown(dataset) if entry.system.team_id is not None else set()
        if entry.pk in moved_ids:
            entry.refresh_from_db(fields=["visibility"])
        board_changed(dataset, Kind.PUBLISHED, entry, {entry.pk, *moved_ids})
    if current_baseline is not None:
        is_measured = entry.provenance == Entry.Provenance.MEASURED
        is_repetition = is_measured and current_baseline.system_id == entry.system_id
        if is_repetition:
            Entry.objects.filter(pk=current_baseline.pk).update(visibility=Entry.Visibility.SUPERSEDED)
        if is_repetition or not is_measured:
            name_baseline(entry)
            entry.refresh_from_db(fields=["is_baseline"])
    elif entry.visibility == public_state and not is_baseline:
        take_over_baseline(entry)


def mark_pooled(dataset: Dataset) -> int:
    """Mark exactly the results whose runs fed a pool of the current qrels, and return the number of changes.

    Call this in the transaction that switches a board to other qrels, before its change is recorded.
    """
    qrels = Dataset.objects.select_related("current_qrels").get(pk=dataset.pk).current_qrels
    if qrels is None:
        return 0
    runs = fed_pools(qrels).values("runs")
    fed_condition = Q(evaluation__run__in=runs) | Q(seeds__evaluation__run__in=runs)
    entries = Entry.objects.filter(dataset=dataset)
    pooled_ids = set(entries.filter(fed_condition).values_list("pk", flat=True))
    change_count = entries.filter(pk__in=pooled_ids, pooled=False).update(pooled=True)
    return change_count + entries.filter(pooled=True).exclude(pk__in=pooled_ids).update(pooled=False)
