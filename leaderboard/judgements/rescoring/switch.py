"""A board comes to stand on other judgements: all of its results that were evaluated on them, at once."""

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from leaderboard.core.audit import actor, record
from leaderboard.core.work_requests import request_notice
from leaderboard.judgements.rescoring.campaigns import settings_of, waiting_runs
from leaderboard.judgements.rescoring.comparison import (
    MovedEntry,
    UnmovedEntry,
    compare,
    digest,
    moved_entries,
)
from leaderboard.judgements.rescoring.content import OfferedContent, offer_content
from leaderboard.models import Dataset, Entry, Rescore, Seed
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.publishing.scored import mark_pooled
from leaderboard.results.significance.hidden import keep_least_difference


class CannotSwitch(ValueError):
    """The board cannot be switched as things are; the text says why, and what would help."""


@transaction.atomic
def switch_board(rescore: Rescore, *, seen: str = "") -> Dataset:
    """Let the dataset's board stand on the rescore's judgements, with all numbers that go with them.

    Old evaluations stay, and so does what permalinks show. Within `audit.acting`: every number that changes is
    recorded with the curator and the reason. `seen` is the `digest` of the comparison that the decision was made on.
    Raises CannotSwitch, with nothing changed, where the rescore is not ready or decided before, where the dataset's
    judgements, settings or results changed since, or where the board would lose its baseline.
    """
    lock_boards([rescore.dataset_id])
    present = Rescore.objects.select_related(
        "dataset__current_qrels", "from_qrels", "to_qrels__version__dataset", "decided_by"
    ).get(pk=rescore.pk)
    _require_ready(present)
    moves, stays = moved_entries(present)
    _require_baseline(present, moves, stays)
    comparison = compare(present, moves, stays)
    if seen and seen != digest(comparison):
        raise CannotSwitch("Numbers changed since you looked at them: look again, then decide.")
    _apply(moves)
    dataset, qrels = present.dataset, present.to_qrels
    dataset.current_qrels = qrels
    dataset.save()
    offer_content(dataset, qrels.version, qrels, OfferedContent.of(present.content))
    keep_least_difference(dataset)
    mark_pooled(dataset)
    update_shown(dataset)
    record(
        "board switched",
        present,
        dataset=dataset,
        before={"qrels": present.from_qrels.number},
        after={"qrels": qrels.number, "results": len(moves), "stale": len(stays)},
    )
    board_changed(dataset, Kind.RESCORED)
    Rescore.objects.filter(pk=present.pk).update(
        state=Rescore.State.SWITCHED,
        comparison=comparison,
        decided_by=actor().person,
        decided_at=timezone.now(),
    )
    request_notice("rescored", rescore=present.pk)
    rescore.refresh_from_db()
    return dataset


def _require_ready(rescore: Rescore) -> None:
    dataset = rescore.dataset
    if rescore.state != Rescore.State.READY:
        by = f" by {rescore.decided_by}" if rescore.decided_by else ""
        raise CannotSwitch(f"This rescore cannot be switched to, it is: {rescore.get_state_display()}{by}.")
    if dataset.current_qrels_id != rescore.from_qrels_id:
        raise CannotSwitch(
            f"{dataset} does not stand on {rescore.from_qrels} any more. Throw this rescore away, and start another."
        )
    then, now = rescore.content.get("settings", {}), settings_of(dataset)
    changed = sorted(name.replace("_", " ") for name in now if then.get(name) != now[name])
    if changed:
        raise CannotSwitch(
            f"Settings of {dataset} changed since its runs were evaluated ({', '.join(changed)}). "
            "Evaluate again, and look at the numbers again."
        )
    waiting = waiting_runs(rescore).count()
    if waiting:
        raise CannotSwitch(f"{waiting:,} runs are not evaluated yet. Wait until they are, or evaluate again.")


def _require_baseline(rescore: Rescore, moves: Sequence[MovedEntry], stays: Sequence[UnmovedEntry]) -> None:
    """Raise CannotSwitch unless the board's baseline moves with it."""
    if any(move.is_baseline for move in moves):
        return
    prefix = f"scored:{rescore.from_qrels.version_id}:{rescore.from_qrels_id}:"
    for stay in stays:
        if stay.entry.is_baseline and stay.entry.comparison_group.startswith(prefix):
            raise CannotSwitch(
                f"The baseline, {stay.entry.system}, could not be rescored: {stay.why}. Name another baseline first."
            )


def _apply(moves: Sequence[MovedEntry]) -> None:
    """Point entries and seeds to their new evaluations, with the values that are published of these."""
    if any(move.is_baseline for move in moves):  # one that was there before gives way to the present one
        groups = {move.comparison_group for move in moves}
        datasets = {move.entry.dataset_id for move in moves}
        Entry.objects.filter(dataset__in=datasets, comparison_group__in=groups, is_baseline=True).update(
            is_baseline=False
        )
    seeds = []
    for move in moves:
        entry = move.entry
        if entry.evaluation_id is not None:
            entry.evaluation = move.after[0]
        for seed, evaluation, scores in zip(move.seeds, move.after, move.seed_scores, strict=False):
            seed.evaluation, seed.scores = evaluation, scores
            seeds.append(seed)
        entry.scores, entry.deviations = move.scores, move.deviations
        entry.private_scores = move.private_scores
        entry.comparison_group = move.comparison_group
        entry.missing_queries = move.missing_queries
        entry.is_baseline = move.is_baseline
    Seed.objects.bulk_update(seeds, ["evaluation", "scores"], batch_size=200)
    Entry.objects.bulk_update(
        [move.entry for move in moves],
        [
            "evaluation", "scores", "deviations", "private_scores", "comparison_group", "missing_queries",
            "is_baseline",
        ],
        batch_size=100,
    )  # fmt: skip
