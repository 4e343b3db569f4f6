"""Results scored here, on their board: single ones and seed sets, with what it says of how their runs came."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Evaluation, Pool, Seed, User
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


@dataclass(frozen=True, slots=True)
class EntryOrigin:
    """What the submission said of its run; nothing, where it came in no round."""

    round_id: int | None = None
    late: bool = False
    run_type: str = ""

    def columns(self, evaluations: Collection[Evaluation]) -> dict[str, Any]:
        """The entry's columns; whether its runs fed a pool is known from the judgements that scored them."""
        pools = Pool.objects.filter(state=Pool.State.READY, runs__in=[each.run_id for each in evaluations])
        return {
            "round_id": self.round_id,
            "late": self.late,
            "run_type": self.run_type,
            # One query where none fed any, as of new runs.
            "pooled": pools.exists()
            and any(fed_pools(each.qrels).filter(runs=each.run_id).exists() for each in evaluations),
        }


NO_MARKS = EntryOrigin()


@transaction.atomic(savepoint=False)
def publish_entry(
    *,
    evaluation: Evaluation,
    provenance: Entry.Provenance,
    public: bool,
    submission_reference: str = "",
    submitter: User | None = None,
    is_baseline: bool = False,
    facts: Mapping[str, str | int | float] | None = None,
    marks: EntryOrigin = NO_MARKS,
    held: Dataset | None = None,
) -> Entry:
    """Show an evaluation on its dataset's board (or keep it for its team). Publishing it again changes nothing.

    With `is_baseline` it becomes the baseline of its group, unless it is the site's own retrieval (MEASURED) and a
    curator named another run.

    Over hidden judgements it may come back HELD, without scores: then it is told to nobody, or not yet. `held` is the
    dataset's row as `lock_board` gave it, where the caller's transaction holds the board already.
    """
    dataset = held or lock_board(evaluation.run.version.dataset_id)
    known = Entry.objects.filter(evaluation=evaluation).first()
    if known is not None:
        return known
    entry = Entry(
        evaluation=evaluation,
        provenance=provenance,
        configuration=evaluation.run.configuration,
        facts=dict(facts or {}),
        submission_reference=submission_reference,
        submitter=submitter,
        public_wanted=public,
        **marks.columns([evaluation]),
    )
    _save_scored(entry, dataset, [evaluation])
    present = _present_baseline(entry) if is_baseline else None
    if is_baseline and present is None:
        entry.is_baseline = True
        entry.save(update_fields=["is_baseline"])
    _record_publication(dataset, entry)
    if present is not None:
        made_again = provenance == Entry.Provenance.MEASURED and present.system_id == entry.system_id
        if made_again:
            Entry.objects.filter(pk=present.pk).update(visibility=Entry.Visibility.SUPERSEDED)
        if made_again or provenance != Entry.Provenance.MEASURED:
            name_baseline(entry)
            entry.refresh_from_db(fields=["is_baseline"])
    elif entry.visibility == Entry.Visibility.PUBLIC and not is_baseline:
        take_over_baseline(entry)
    return entry


def _present_baseline(entry: Entry) -> Entry | None:
    """Return the public baseline in the entry's comparison group, if any."""
    group = Entry.objects.filter(dataset=entry.dataset_id, comparison_group=entry.comparison_group)
    return group.filter(is_baseline=True, visibility=Entry.Visibility.PUBLIC).first()


@transaction.atomic
def publish_seed_set(
    seeds: Mapping[str, Evaluation],
    *,
    provenance: Entry.Provenance,
    public: bool,
    configuration: str = "",
    submission_reference: str = "",
    submitter: User | None = None,
    facts: Mapping[str, str | int | float] | None = None,
    marks: EntryOrigin = NO_MARKS,
) -> Entry:
    """Show the runs of one system that differ by their seeds, by label, as one entry: their mean and deviation.

    All of them together, since a mean over those that are there already would change with each. Publishing the set
    again changes nothing. It may come back HELD, as a single result may: its mean decides. Over hidden judgements mean
    and deviation are all that is stored for readers.
    Raises ValueError for runs that are no set: of too few or too many seeds, several systems, or not comparable.
    """
    evaluations = list(seeds.values())
    if len(evaluations) not in SEEDS:
        raise ValueError(f"a seed set has {SEEDS.start} to {SEEDS.stop - 1} runs, not {len(evaluations)}")
    if len({each.run.system_id for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one system")
    if len({comparison_group(each) for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one version, judgements and measures")
    # Of two who publish the same set at once the second finds it.
    dataset = lock_board(evaluations[0].run.version.dataset_id)
    known = Seed.objects.filter(evaluation__in=seeds.values()).select_related("entry").first()
    if known is not None:
        return known.entry
    entry = Entry(
        provenance=provenance,
        configuration=configuration,
        seed_count=len(seeds),
        facts=dict(facts or {}),
        submission_reference=submission_reference,
        submitter=submitter,
        public_wanted=public,
        **marks.columns(evaluations),
    )
    published = _save_scored(entry, dataset, evaluations)
    Seed.objects.bulk_create(
        Seed(
            entry=entry,
            evaluation=evaluation,
            label=label,
            scores=scores,
            published_at=entry.published_at,
        )
        for (label, evaluation), scores in zip(seeds.items(), published.seed_scores, strict=True)
    )
    _record_publication(dataset, entry)
    return entry


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


def _record_publication(dataset: Dataset, entry: Entry) -> None:
    """Count the change of the board, where the new entry is one; with the first baseline there is more to say."""
    keep_least_difference(dataset, scorer=True)
    if entry.visibility == Entry.Visibility.PUBLIC:
        moved = update_shown(dataset) if entry.system.team_id is not None else set()
        if entry.pk in moved:
            entry.refresh_from_db(fields=["visibility"])
        board_changed(dataset, Kind.PUBLISHED, entry, {entry.pk, *moved})


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
