"""What a rescore found, side by side: each result's numbers, rank and holes on the old judgements and on the new.

All values are published ones, rounded where the judgements are hidden: for curators too, since what they read here
ends in mails and slides. It is computed until the rescore is decided, and kept then. It is made of moves: what a switch
would do to each result, which evaluation it would stand on, or why it would stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from django.db.models import Prefetch

from evaluation.measures.registry import SPEC_VERSION
from evaluation.statistics.randomisation import randomisation_test
from leaderboard.core.measures import better
from leaderboard.models import Entry, Evaluation, Rescore, Seed
from leaderboard.results.kinds import rank_values
from leaderboard.results.records import entry_evaluations, per_query_values
from leaderboard.results.significance.types import ALPHA
from leaderboard.results.values import (
    HOLE,
    comparison_group,
    published_private_scores,
    published_result,
    published_value,
)

#: The states in which the numbers are kept.
_DECIDED = (Rescore.State.SWITCHED, Rescore.State.DISCARDED)


def comparison_of(rescore: Rescore) -> dict[str, Any]:
    """As it was when the rescore was decided; until then as it is now."""
    if rescore.state in _DECIDED and rescore.comparison:
        return dict(rescore.comparison)
    return compare(rescore, *moved_entries(rescore))


def compare(rescore: Rescore, moves: Sequence[MovedEntry], stays: Sequence[UnmovedEntry]) -> dict[str, Any]:
    """Plain values that can be kept: `rows` are the results that move, `stays` those that do not, and why."""
    dataset = rescore.dataset
    rows = [_row(move, hidden=dataset.hidden) for move in moves]
    _rank(rows, dataset.measures)
    return {
        "from": rescore.from_qrels.number,
        "to": rescore.to_qrels.number,
        "hidden": dataset.hidden,
        "measures": list(dataset.measures),
        "primary": dataset.primary_measure,
        "marks": rescore.content.get("marks", {}),
        "rows": rows,
        "stays": [{**_named(stay.entry), "why": stay.why} for stay in stays],
    }


def restrict_comparison(comparison: Mapping[str, Any], entries: Collection[int]) -> dict[str, Any]:
    """Return the comparison of these results alone, with ranks among them: none that is missing leaves a gap."""
    rows = [
        {**row, "rank_before": {}, "rank_after": {}} for row in comparison["rows"] if row["entry"] in entries
    ]
    _rank(rows, comparison["measures"])
    stays = [stay for stay in comparison["stays"] if stay["entry"] in entries]
    return {**comparison, "rows": rows, "stays": stays}


def digest(comparison: Mapping[str, Any]) -> str:
    """Return a checksum of the comparison, by which a decision names the one that it is based on."""
    return hashlib.sha256(json.dumps(comparison, sort_keys=True).encode()).hexdigest()[:16]


def _named(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.pk,
        "system": entry.system.name,
        "slug": entry.system.slug,
        "closed_api": entry.system.closed_api,
        "configuration": entry.configuration,
        "provenance": entry.provenance,
        "visibility": entry.visibility,
        "is_baseline": entry.is_baseline,
        "seeds": entry.seed_count,
    }


def _row(move: MovedEntry, *, hidden: bool) -> dict[str, Any]:
    held = move.entry.visibility == Entry.Visibility.HELD
    return {
        **_named(move.entry),
        "is_baseline": move.is_baseline,
        "before": dict(move.entry.scores),
        "after": dict(move.scores),
        "hole_before": None if held else _hole(move.before, hidden=hidden),
        "hole_after": None if held else _hole(move.after, hidden=hidden),
        "rank_before": {},
        "rank_after": {},
    }


def _hole(evaluations: Sequence[Evaluation], *, hidden: bool) -> float | None:
    """Return the share of unjudged documents among the first ten; of seeds the mean of their published values."""
    values = [each.means[HOLE] for each in evaluations if HOLE in each.means]
    if len(values) < len(evaluations):
        return None
    published = [published_value(value, hidden=hidden) for value in values]
    return published_value(sum(published) / len(published), hidden=hidden)


def _rank(rows: Sequence[dict[str, Any]], measures: Iterable[str]) -> None:
    """Places among the public results that move, closed interfaces apart, as on the board."""
    for measure, when, closed in product(measures, ("before", "after"), (False, True)):
        peers = [
            row
            for row in rows
            if row["closed_api"] == closed
            and row["visibility"] == Entry.Visibility.PUBLIC
            and measure in row[when]
        ]
        place = rank_values([row[when][measure] for row in peers], lower_is_better=better(measure) == "lower")
        for row in peers:
            row[f"rank_{when}"][measure] = place[row[when][measure]]


@dataclass(frozen=True, slots=True)
class MovedEntry:
    """An entry and what it comes to stand on: one evaluation, or one for each of its seeds.

    `before` are the evaluations that it stands on now. The numbers are published values.
    """

    entry: Entry
    seeds: Sequence[Seed]
    before: Sequence[Evaluation]
    after: Sequence[Evaluation]
    seed_scores: Sequence[dict[str, float]]
    scores: dict[str, float]
    deviations: dict[str, float]
    private_scores: dict[str, float]
    comparison_group: str
    missing_queries: int | None
    is_baseline: bool


@dataclass(frozen=True, slots=True)
class UnmovedEntry:
    """An entry that keeps its numbers, and is stale after the switch unless it is a publication's."""

    entry: Entry
    why: str


def moved_entries(rescore: Rescore) -> tuple[list[MovedEntry], list[UnmovedEntry]]:
    """Every entry of the dataset, as it would move, or why it would not; in order of publication."""
    entries = _entries(rescore)
    new = {
        evaluation.run_id: evaluation
        for evaluation in Evaluation.objects.filter(qrels=rescore.to_qrels, specification=SPEC_VERSION)
        .select_related("run", "qrels")
        .defer("values")
        .prefetch_related("parts")
    }
    taken = set(Entry.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    taken |= set(Seed.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    found: dict[int, MovedEntry | UnmovedEntry] = {}
    # Of two results of one run that on the present judgements counts: an older one would only repeat it.
    for entry in sorted(entries, key=lambda each: not _on(each, rescore.from_qrels_id)):
        why = _stays(entry, rescore, new, taken)
        if why:
            found[entry.pk] = UnmovedEntry(entry, why)
        else:
            move = _move(entry, rescore, new)
            taken |= {evaluation.pk for evaluation in move.after}
            found[entry.pk] = move
    ordered = [found[entry.pk] for entry in entries]
    moves = [each for each in ordered if isinstance(each, MovedEntry)]
    return _with_one_baseline(moves), [each for each in ordered if isinstance(each, UnmovedEntry)]


def _entries(rescore: Rescore) -> list[Entry]:
    entries = Entry.objects.filter(dataset=rescore.dataset_id).order_by("published_at", "pk")
    entries = entries.select_related("system", "source", "evaluation__run__version", "evaluation__qrels")
    seeds = Seed.objects.select_related("evaluation__run__version", "evaluation__qrels")
    with_seeds = entries.prefetch_related(Prefetch("seeds", seeds.defer("evaluation__values")))
    return list(with_seeds.defer("evaluation__values"))


def _on(entry: Entry, qrels_id: int) -> bool:
    return any(evaluation.qrels_id == qrels_id for evaluation in entry_evaluations(entry))


def _stays(entry: Entry, rescore: Rescore, new: dict[int, Evaluation], taken: set[int]) -> str:
    """Why the entry cannot move; empty where it can."""
    evaluations, target = entry_evaluations(entry), rescore.to_qrels
    if not evaluations:
        return "reported by a publication: the run is not available"
    first = evaluations[0]
    if first.run.version_id != target.version_id:
        return f"scored on version {first.run.version.number} of the dataset"
    if first.qrels.split != target.split:
        return f"scored on the split {first.qrels.split}"
    if first.qrels_id == target.pk:
        return "scored on these judgements before"
    for evaluation in evaluations:
        if evaluation.run_id not in new:
            return rescore.lost.get(str(evaluation.run_id), "not evaluated yet")
        if new[evaluation.run_id].pk in taken:
            return "replaced by another result of the same run"
    return ""


def _move(entry: Entry, rescore: Rescore, new: dict[int, Evaluation]) -> MovedEntry:
    dataset, before = rescore.dataset, entry_evaluations(entry)
    after = [new[evaluation.run_id] for evaluation in before]
    held = entry.visibility == Entry.Visibility.HELD  # a held result has no published value, now or then
    published = published_result(after, dataset, held=held)
    return MovedEntry(
        entry=entry,
        seeds=list(entry.seeds.all()),
        before=before,
        after=after,
        seed_scores=published.seed_scores,
        scores=published.scores,
        deviations=published.deviations,
        # If the private part was revealed before, its values on the new judgements are published too.
        private_scores=published_private_scores(after, dataset) if entry.private_scores else {},
        comparison_group=comparison_group(after[0]),
        missing_queries=None if dataset.hidden else max(each.missing_queries for each in after),
        is_baseline=entry.is_baseline and before[0].qrels_id == rescore.from_qrels_id,
    )


def _with_one_baseline(moves: Iterable[MovedEntry]) -> list[MovedEntry]:
    """All of them come into one comparison group, which has one baseline: the last that everyone sees."""
    moves = list(moves)
    named = [each for each in moves if each.is_baseline]
    public = [each for each in named if each.entry.visibility == Entry.Visibility.PUBLIC]
    chosen = (public or named)[-1:]
    return [
        each
        if not each.is_baseline or any(each is one for one in chosen)
        else replace(each, is_baseline=False)
        for each in moves
    ]


#: By `better` and `worse`, how many public results are so on the old judgements and on the new.
Marks = dict[str, tuple[int, int]]


def count_marks(rescore: Rescore) -> Marks:
    """Count the results that are significantly better and worse than the baseline, as the board marks them.

    In the primary measure, of the public results that move. Nothing over hidden judgements, where a test would
    tell more than rounded scores do, and without a baseline.
    """
    moves = [each for each in moved_entries(rescore)[0] if each.entry.visibility == Entry.Visibility.PUBLIC]
    baseline = next((place for place, each in enumerate(moves) if each.is_baseline), None)
    if rescore.dataset.hidden or baseline is None:
        return {}
    measure = rescore.dataset.primary_measure
    old = _count([each.before for each in moves], baseline, measure)
    new = _count([each.after for each in moves], baseline, measure)
    return {"better": (old[0], new[0]), "worse": (old[1], new[1])}


def _count(evaluations: Sequence[Sequence[Evaluation]], baseline: int, measure: str) -> tuple[int, int]:
    values = np.column_stack(
        [
            np.mean([per_query_values(each)[:, each.measures.index(measure)] for each in seeds], axis=0)
            for seeds in evaluations
        ]
    )
    differences = values.mean(axis=0) - values[:, baseline].mean()
    clear = differences[randomisation_test(values, baseline) < ALPHA]
    above, below = int(np.count_nonzero(clear > 0)), int(np.count_nonzero(clear < 0))
    return (below, above) if better(measure) == "lower" else (above, below)
