"""Compare a rescore's results with the present ones, and switch the board to them, all results at once.

All values of a comparison are published ones, rounded where the judgements are hidden: for curators too, since what
they read here ends in mails and slides. A comparison is computed until the rescore is decided, and kept then. It is
made of moves: the evaluation that each result would stand on after a switch, or why it would stay.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import Prefetch
from django.utils import timezone

from evaluation.measures.registry import SPEC_VERSION
from evaluation.statistics.randomisation import randomisation_test
from leaderboard.core.audit import actor, record
from leaderboard.core.measures import better
from leaderboard.core.work_requests import request_notice
from leaderboard.judgements.rescoring.campaigns import settings_of, waiting_runs
from leaderboard.judgements.rescoring.content import OfferedContent, offer_content
from leaderboard.models import Dataset, Entry, Evaluation, Rescore, Seed
from leaderboard.results.board_rows.entry_rows import rank_values
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.publishing.scored import mark_pooled
from leaderboard.results.records import entry_evaluations, per_query_values
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.significance.types import ALPHA
from leaderboard.results.values import (
    HOLE,
    comparison_group,
    published_private_scores,
    published_result,
    published_value,
)


@dataclass(frozen=True, slots=True)
class MovedEntry:
    """An entry and what it comes to stand on: one evaluation, or one for each of its seeds.

    `before` are the evaluations that it stands on now. `columns` are its new ones, with published values.
    """

    entry: Entry
    before: Sequence[Evaluation]
    after: Sequence[Evaluation]
    seed_scores: Sequence[dict[str, float]]
    columns: dict[str, Any]

    @property
    def is_baseline(self) -> bool:
        """Whether it is the baseline after the switch."""
        return bool(self.columns["is_baseline"])

    def as_row(self, *, hidden: bool) -> dict[str, Any]:
        """Return its row of the comparison, without ranks. The holes of a held result are not published."""
        holes: tuple[float | None, float | None] = None, None
        if self.entry.visibility != Entry.Visibility.HELD:
            holes = _hole(self.before, hidden=hidden), _hole(self.after, hidden=hidden)
        return {
            **_named(self.entry),
            "is_baseline": self.is_baseline,
            "before": dict(self.entry.scores),
            "after": dict(self.columns["scores"]),
            "hole_before": holes[0],
            "hole_after": holes[1],
            "rank_before": {},
            "rank_after": {},
        }


class UnmovedEntry(NamedTuple):
    """An entry that keeps its numbers, and is stale after the switch unless it is a publication's."""

    entry: Entry
    why: str


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
    rows = [move.as_row(hidden=dataset.hidden) for move in moves]
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


def moved_entries(rescore: Rescore) -> tuple[list[MovedEntry], list[UnmovedEntry]]:
    """Every entry of the dataset, as it would move, or why it would not; in order of publication."""
    rows = Entry.objects.filter(dataset=rescore.dataset_id).order_by("published_at", "pk")
    rows = rows.select_related("system", "source", "evaluation__run__version", "evaluation__qrels")
    seeds = Seed.objects.select_related("evaluation__run__version", "evaluation__qrels")
    with_seeds = rows.prefetch_related(Prefetch("seeds", seeds.defer("evaluation__values")))
    entries = list(with_seeds.defer("evaluation__values"))
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

    def repeats(entry: Entry) -> bool:
        # Of two results of one run that on the present judgements counts: an older one would only repeat it.
        return all(each.qrels_id != rescore.from_qrels_id for each in entry_evaluations(entry))

    for entry in sorted(entries, key=repeats):
        why = _stays(entry, rescore, new, taken)
        if why:
            found[entry.pk] = UnmovedEntry(entry, why)
        else:
            move = _move(entry, rescore, new)
            taken |= {evaluation.pk for evaluation in move.after}
            found[entry.pk] = move
    ordered = [found[entry.pk] for entry in entries]
    moves = [each for each in ordered if isinstance(each, MovedEntry)]
    # All of them come into one comparison group, which has one baseline: the last that everyone sees.
    named = [each for each in moves if each.is_baseline]
    public = [each for each in named if each.entry.visibility == Entry.Visibility.PUBLIC]
    for move in named:
        move.columns["is_baseline"] = move is (public or named)[-1]
    return moves, [each for each in ordered if isinstance(each, UnmovedEntry)]


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
    published = published_result(after, dataset, is_held=held)
    columns = {
        "scores": published.scores,
        "deviations": published.deviations,
        # If the private part was revealed before, its values on the new judgements are published too.
        "private_scores": published_private_scores(after, dataset) if entry.private_scores else {},
        "comparison_group": comparison_group(after[0]),
        "missing_queries": None if dataset.hidden else max(each.missing_queries for each in after),
        "is_baseline": entry.is_baseline and before[0].qrels_id == rescore.from_qrels_id,
    }
    return MovedEntry(entry, before, after, published.seed_scores, columns)


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
        groups = {move.columns["comparison_group"] for move in moves}
        datasets = {move.entry.dataset_id for move in moves}
        Entry.objects.filter(dataset__in=datasets, comparison_group__in=groups, is_baseline=True).update(
            is_baseline=False
        )
    seeds = []
    for move in moves:
        entry = move.entry
        if entry.evaluation_id is not None:
            entry.evaluation = move.after[0]
        for seed, evaluation, scores in zip(entry.seeds.all(), move.after, move.seed_scores, strict=False):
            seed.evaluation, seed.scores = evaluation, scores
            seeds.append(seed)
        for name, value in move.columns.items():
            setattr(entry, name, value)
    Seed.objects.bulk_update(seeds, ["evaluation", "scores"], batch_size=200)
    if moves:
        columns = ["evaluation", *moves[0].columns]
        Entry.objects.bulk_update([move.entry for move in moves], columns, batch_size=100)
