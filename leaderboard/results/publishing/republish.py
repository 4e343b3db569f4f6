"""All of a dataset's results published anew from what is stored, after its measures, rounding or protection changed."""

from __future__ import annotations

from django.db import transaction

from leaderboard.models import BoardChange, Dataset, Entry, Seed
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.ladder_places import update_shown
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import (
    aggregate_seeds,
    published_private_scores,
    published_scores,
    shown_seed_scores,
)


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
        of_seeds = list(entry.seeds.all()) if entry.evaluation is None else []
        published = _published(entry, of_seeds, dataset)
        for seed, scores in zip(of_seeds, published, strict=False):
            seed.scores = shown_seed_scores(scores, dataset)
        entry.scores, entry.deviations = (
            aggregate_seeds(published, dataset) if of_seeds else (published[0], {})
        )
        entry.private_scores = private_scores_of(entry, dataset) if entry.private_scores else {}
        seeds += of_seeds
        changed.append(entry)
    Seed.objects.bulk_update(seeds, ["scores"], batch_size=200)
    Entry.objects.bulk_update(changed, ["scores", "deviations", "private_scores"], batch_size=200)
    keep_least_difference(dataset)


def _published(entry: Entry, seeds: list[Seed], dataset: Dataset) -> list[dict[str, float]]:
    """The published values of the entry's evaluation, or of each of its seeds'; of a held one there are none."""
    evaluations = [entry.evaluation] if entry.evaluation is not None else [seed.evaluation for seed in seeds]
    if entry.visibility == Entry.Visibility.HELD:
        return [{} for _ in evaluations]
    return [published_scores(evaluation, dataset) for evaluation in evaluations]


def private_scores_of(entry: Entry, dataset: Dataset) -> dict[str, float]:
    """An entry's published values over a competition's private part: of a seed set the mean of its seeds'."""
    if entry.evaluation is not None:
        return published_private_scores(entry.evaluation, dataset)
    seeds = [published_private_scores(seed.evaluation, dataset) for seed in entry.seeds.all()]
    return aggregate_seeds(seeds, dataset, private=True)[0]
