"""All of a dataset's results published anew from what is stored, after its measures, rounding or protection changed."""

from __future__ import annotations

from django.db import transaction

from leaderboard.models import BoardChange, Dataset, Entry, Seed
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.ladder_places import update_shown
from leaderboard.results.records import entry_evaluations
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import published_private_scores, published_result


@transaction.atomic
def refresh_scores(dataset: Dataset, kind: BoardChange.Kind = Kind.MEASURES) -> None:
    """Publish the stored means again. What the Ladder holds stays without scores, until judgements are opened."""
    lock_boards([dataset.pk])
    if not dataset.hidden:
        held = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.HELD)
        held.filter(public_wanted=False).update(visibility=Entry.Visibility.PRIVATE)
        held.update(visibility=Entry.Visibility.PUBLIC)
    fill_scores(dataset, list(Entry.objects.filter(dataset=dataset)))
    update_shown(dataset)
    board_changed(dataset, kind)


def fill_scores(dataset: Dataset, entries: list[Entry]) -> None:
    """Give entries scored here their published values, and those whose private part was revealed that one's."""
    keys = [entry.pk for entry in entries]
    rows = Entry.objects.filter(pk__in=keys).exclude(provenance=Entry.Provenance.REPORTED)
    rows = (
        rows.select_related("evaluation")
        .defer("evaluation__values")
        .prefetch_related("evaluation__parts", "seeds__evaluation__parts")
    )
    changed: list[Entry] = []
    seeds: list[Seed] = []
    for entry in rows.iterator(chunk_size=200):
        evaluations = entry_evaluations(entry)
        held = entry.visibility == Entry.Visibility.HELD
        entry.scores, entry.deviations, seed_scores = published_result(evaluations, dataset, held=held)
        if entry.private_scores:
            entry.private_scores = published_private_scores(evaluations, dataset)
        if entry.evaluation is None:
            for seed, scores in zip(entry.seeds.all(), seed_scores, strict=True):
                seed.scores = scores
                seeds.append(seed)
        changed.append(entry)
    Seed.objects.bulk_update(seeds, ["scores"], batch_size=200)
    Entry.objects.bulk_update(changed, ["scores", "deviations", "private_scores"], batch_size=200)
    keep_least_difference(dataset)
