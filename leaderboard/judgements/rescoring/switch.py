"""Comparison of a rescore with the current results, and the switch of the board to all new results at once.

A comparison contains only published values, rounded for hidden judgments, even for curators, who may copy them into
emails and slides. It is recomputed until the rescore is decided, and then stored. It lists the evaluation that each
result would use after the switch, or the reason why the result would not move.
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
from leaderboard.judgements.rescoring.campaigns import scoring_settings, waiting_runs
from leaderboard.judgements.rescoring.content import OfferedContent, offer_content
from leaderboard.models import REFERENCE_TYPES, Dataset, Entry, Evaluation, Rescore, Seed
from leaderboard.results.board_rows.entry_rows import rank_values
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.publishing.scored import mark_pooled
from leaderboard.results.records import entry_evaluations, mean_values
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
    """An entry with its evaluations before and after the switch, one for each seed.

    `columns` are its new column values, with published scores.
    """

    entry: Entry
    before: Sequence[Evaluation]
    after: Sequence[Evaluation]
    seed_scores: Sequence[dict[str, float]]
    columns: dict[str, Any]

    @property
    def is_baseline(self) -> bool:
        """Whether the entry is the baseline after the switch."""
        return bool(self.columns["is_baseline"])

    def as_row(self, *, hidden: bool) -> dict[str, Any]:
        """Return the entry's row of the comparison, with empty ranks; held results have no Hole@10 values."""
        holes: tuple[float | None, float | None] = None, None
        if self.entry.visibility != Entry.Visibility.HELD:
            holes = _published_hole(self.before, hidden=hidden), _published_hole(self.after, hidden=hidden)
        return {
            **_entry_columns(self.entry),
            "is_baseline": self.is_baseline,
            "before": dict(self.entry.scores),
            "after": dict(self.columns["scores"]),
            "hole_before": holes[0],
            "hole_after": holes[1],
            "rank_before": {},
            "rank_after": {},
        }


class UnmovedEntry(NamedTuple):
    """An entry whose scores do not change; it is stale after the switch unless it is reported."""

    entry: Entry
    reason: str


#: States in which the comparison is stored.
_DECIDED_STATES = (Rescore.State.SWITCHED, Rescore.State.DISCARDED)


def get_comparison(rescore: Rescore) -> dict[str, Any]:
    """Return the stored comparison of a decided rescore, or else compute the current one."""
    if rescore.state in _DECIDED_STATES and rescore.comparison:
        return dict(rescore.comparison)
    return compare(rescore, *moved_entries(rescore))


def compare(rescore: Rescore, moves: Sequence[MovedEntry], stays: Sequence[UnmovedEntry]) -> dict[str, Any]:
    """Return the comparison as plain values: `rows` for results that move, `stays` for others with the reasons.

    Rows have ranks before and after.
    """
    dataset = rescore.dataset
    rows = [move.as_row(hidden=dataset.hidden) for move in moves]
    _set_ranks(rows, dataset.measures)
    return {
        "from": rescore.from_qrels.number,
        "to": rescore.to_qrels.number,
        "hidden": dataset.hidden,
        "measures": list(dataset.measures),
        "primary": dataset.primary_measure,
        "marks": rescore.content.get("marks", {}),
        "rows": rows,
        "stays": [{**_entry_columns(stay.entry), "why": stay.reason} for stay in stays],
    }


def restrict_comparison(comparison: Mapping[str, Any], entries: Collection[int]) -> dict[str, Any]:
    """Return the comparison of these entries only, with ranks among them, so that the ranks have no gaps."""
    rows = [{**row, "rank_before": {}, "rank_after": {}} for row in comparison["rows"] if row["entry"] in entries]
    _set_ranks(rows, comparison["measures"])
    stays = [stay for stay in comparison["stays"] if stay["entry"] in entries]
    return {**comparison, "rows": rows, "stays": stays}


def digest(comparison: Mapping[str, Any]) -> str:
    """Return a checksum of the comparison that identifies the basis of a decision."""
    return hashlib.sha256(json.dumps(comparison, sort_keys=True).encode()).hexdigest()[:16]


def _entry_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of an entry that the comparison shows; only references have a run type."""
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
        # A key of all rows would change the digests of the comparisons that curators have open.
        **({"run_type": entry.run_type} if entry.run_type in REFERENCE_TYPES else {}),
    }


def _published_hole(evaluations: Sequence[Evaluation], *, hidden: bool) -> float | None:
    """Return the published share of unjudged documents in the top ten, averaged over seeds, or None if one lacks it."""
    values = [evaluation.means[HOLE] for evaluation in evaluations if HOLE in evaluation.means]
    if len(values) < len(evaluations):
        return None
    published_values = [published_value(value, hidden=hidden) for value in values]
    return published_value(sum(published_values) / len(published_values), hidden=hidden)


def _set_ranks(rows: Sequence[dict[str, Any]], measures: Iterable[str]) -> None:
    """Set `rank_before` and `rank_after` of the rows by measure, among public results without references.

    Closed APIs are ranked separately, as on the board.
    """
    rows = [row for row in rows if row["visibility"] == Entry.Visibility.PUBLIC and "run_type" not in row]
    for measure, side, is_closed in product(measures, ("before", "after"), (False, True)):
        peers = [row for row in rows if row["closed_api"] == is_closed and measure in row[side]]
        ranks = rank_values([row[side][measure] for row in peers], lower_is_better=better(measure) == "lower")
        for row in peers:
            row[f"rank_{side}"][measure] = ranks[row[side][measure]]


def moved_entries(rescore: Rescore) -> tuple[list[MovedEntry], list[UnmovedEntry]]:
    """Return the entries that move to the new judgments and the others with reasons, each in order of publication.

    At most one of the moved entries is the baseline: the last public one.
    """
    rows = Entry.objects.filter(dataset=rescore.dataset_id).order_by("published_at", "pk")
    rows = rows.select_related("system", "source", "evaluation__run__version", "evaluation__qrels")
    seeds = Seed.objects.select_related("evaluation__run__version", "evaluation__qrels")
    with_seeds = rows.prefetch_related(Prefetch("seeds", seeds.defer("evaluation__values")))
    entries = list(with_seeds.defer("evaluation__values"))
    new_evaluations = {
        evaluation.run_id: evaluation
        for evaluation in Evaluation.objects.filter(qrels=rescore.to_qrels, specification=SPEC_VERSION)
        .select_related("run", "qrels")
        .defer("values")
        .prefetch_related("parts")
    }
    used_ids = set(Entry.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    used_ids |= set(Seed.objects.filter(evaluation__qrels=rescore.to_qrels).values_list("evaluation", flat=True))
    outcomes: dict[int, MovedEntry | UnmovedEntry] = {}

    def repeats(entry: Entry) -> bool:
        # If a run has two results, the one on the current judgments counts, because an older one would repeat it.
        return all(item.qrels_id != rescore.from_qrels_id for item in entry_evaluations(entry))

    for entry in sorted(entries, key=repeats):
        if reason := _reason_to_stay(entry, rescore, new_evaluations, used_ids):
            outcomes[entry.pk] = UnmovedEntry(entry, reason)
        else:
            move = _move_entry(entry, rescore, new_evaluations)
            used_ids |= {evaluation.pk for evaluation in move.after}
            outcomes[entry.pk] = move
    ordered_outcomes = [outcomes[entry.pk] for entry in entries]
    moves = [item for item in ordered_outcomes if isinstance(item, MovedEntry)]
    # All moved entries share a comparison group with one baseline, which is the last public one.
    baselines = [item for item in moves if item.is_baseline]
    public_baselines = [item for item in baselines if item.entry.visibility == Entry.Visibility.PUBLIC]
    for move in baselines:
        move.columns["is_baseline"] = move is (public_baselines or baselines)[-1]
    return moves, [item for item in ordered_outcomes if isinstance(item, UnmovedEntry)]


def _reason_to_stay(entry: Entry, rescore: Rescore, new_evaluations: dict[int, Evaluation], used_ids: set[int]) -> str:
    """Return the reason why the entry cannot move to the new judgments, or an empty string if it can.

    `new_evaluations` are by run id; `used_ids` are those that entries already use.
    """
    evaluations, target = entry_evaluations(entry), rescore.to_qrels
    if not evaluations:
        return "reported by a publication: the run is not available"
    first_evaluation = evaluations[0]
    if first_evaluation.run.version_id != target.version_id:
        return f"scored on version {first_evaluation.run.version.number} of the dataset"
    if first_evaluation.qrels.split != target.split:
        return f"scored on the split {first_evaluation.qrels.split}"
    if first_evaluation.qrels_id == target.pk:
        return "already scored on these judgments"
    for evaluation in evaluations:
        if evaluation.run_id not in new_evaluations:
            return rescore.lost.get(str(evaluation.run_id), "not evaluated yet")
        if new_evaluations[evaluation.run_id].pk in used_ids:
            return "replaced by another result of the same run"
    return ""


def _move_entry(entry: Entry, rescore: Rescore, new_evaluations: dict[int, Evaluation]) -> MovedEntry:
    """Return the entry with its evaluations on the new judgments and the column values that follow from them.

    All runs of the entry must have a new evaluation.
    """
    dataset, before = rescore.dataset, entry_evaluations(entry)
    after = [new_evaluations[evaluation.run_id] for evaluation in before]
    is_held = entry.visibility == Entry.Visibility.HELD  # held results have no published values before or after
    result = published_result(after, dataset, is_held=is_held)
    columns = {
        "scores": result.scores,
        "deviations": result.deviations,
        # Private values that were revealed before are also published for the new judgments.
        "private_scores": published_private_scores(after, dataset) if entry.private_scores else {},
        "comparison_group": comparison_group(after[0]),
        "missing_queries": None if dataset.hidden else max(row.missing_queries for row in after),
        "is_baseline": entry.is_baseline and before[0].qrels_id == rescore.from_qrels_id,
    }
    return MovedEntry(entry, before, after, result.seed_scores, columns)


#: `better` and `worse` → numbers of significantly different public results on the old and the new judgments.
Marks = dict[str, tuple[int, int]]


def count_marks(rescore: Rescore) -> Marks:
    """Count the results that are significantly better and worse than the baseline, as marked on the board.

    This covers the primary measure of public results that move and have it before and after. The result is empty
    without a baseline, and with hidden judgments, because tests reveal more than rounded scores.
    """
    moves = [
        move
        for move in moved_entries(rescore)[0]
        if move.entry.visibility == Entry.Visibility.PUBLIC
        and all(rescore.dataset.primary_measure in each.measures for each in (*move.before, *move.after))
    ]
    baseline = next((position for position, move in enumerate(moves) if move.is_baseline), None)
    if rescore.dataset.hidden or baseline is None:
        return {}
    measure = rescore.dataset.primary_measure
    old_counts = _count_significant([move.before for move in moves], baseline, measure)
    new_counts = _count_significant([move.after for move in moves], baseline, measure)
    return {"better": (old_counts[0], new_counts[0]), "worse": (old_counts[1], new_counts[1])}


def _count_significant(seed_sets: Sequence[Sequence[Evaluation]], baseline_index: int, measure: str) -> tuple[int, int]:
    """Return the numbers of entries that are significantly better and worse than the baseline, by uncorrected tests.

    `seed_sets` are the evaluations of each entry's seeds, and `baseline_index` is the baseline's position among them.
    """
    means = map(mean_values, seed_sets)
    values = np.column_stack([seed_means[:, names.index(measure)] for names, seed_means in means])
    differences = values.mean(axis=0) - values[:, baseline_index].mean()
    significant_differences = differences[randomisation_test(values, baseline_index) < ALPHA]
    positive_count = int(np.count_nonzero(significant_differences > 0))
    negative_count = int(np.count_nonzero(significant_differences < 0))
    return (negative_count, positive_count) if better(measure) == "lower" else (positive_count, negative_count)


class CannotSwitch(ValueError):
    """The board cannot be switched; the message says why and what to do."""


@transaction.atomic
def switch_board(rescore: Rescore, *, reviewed_digest: str = "") -> Dataset:
    """Switch the dataset's board to the rescore's judgments with all new scores.

    Old evaluations and permalinks do not change. Call this within `audit.acting`: every changed score is recorded with
    the curator and the reason. `reviewed_digest` is the `digest` of the comparison that the decision was based on.

    Raises:
        CannotSwitch: If the rescore is not ready or already decided, if judgments, settings, or results have changed,
            or if the board would lose its baseline. The board does not change.
    """
    lock_boards([rescore.dataset_id])
    locked_rescore = Rescore.objects.select_related(
        "dataset__current_qrels", "from_qrels", "to_qrels__version__dataset", "decided_by"
    ).get(pk=rescore.pk)
    _require_ready(locked_rescore)
    moves, stays = moved_entries(locked_rescore)
    _require_baseline(locked_rescore, moves, stays)
    comparison = compare(locked_rescore, moves, stays)
    if reviewed_digest and reviewed_digest != digest(comparison):
        raise CannotSwitch("The scores have changed since you opened this page. Review them again, then decide.")
    _save_moves(moves)
    dataset, qrels = locked_rescore.dataset, locked_rescore.to_qrels
    dataset.current_qrels = qrels
    dataset.save()
    offer_content(dataset, qrels.version, qrels, OfferedContent.from_stored(locked_rescore.content))
    keep_least_difference(dataset)
    mark_pooled(dataset)
    update_shown(dataset)
    record(
        "board switched",
        locked_rescore,
        dataset=dataset,
        before={"qrels": locked_rescore.from_qrels.number},
        after={"qrels": qrels.number, "results": len(moves), "stale": len(stays)},
    )
    board_changed(dataset, Kind.RESCORED)
    Rescore.objects.filter(pk=locked_rescore.pk).update(
        state=Rescore.State.SWITCHED,
        comparison=comparison,
        decided_by=actor().person,
        decided_at=timezone.now(),
    )
    request_notice("rescored", rescore=locked_rescore.pk)
    rescore.refresh_from_db()
    return dataset


def _require_ready(rescore: Rescore) -> None:
    """Raise CannotSwitch if the rescore is not ready, judgments or settings have changed, or runs are waiting."""
    dataset = rescore.dataset
    if rescore.state != Rescore.State.READY:
        suffix = f" by {rescore.decided_by}" if rescore.decided_by else ""
        raise CannotSwitch(f"You cannot switch to this rescore because it is {rescore.get_state_display()}{suffix}.")
    if dataset.current_qrels_id != rescore.from_qrels_id:
        raise CannotSwitch(
            f"{dataset} no longer uses {rescore.from_qrels}. Discard this rescore and start another one."
        )
    old_settings, current_settings = rescore.content.get("settings", {}), scoring_settings(dataset)
    changed_names = sorted(
        name.replace("_", " ") for name in current_settings if old_settings.get(name) != current_settings[name]
    )
    if changed_names:
        raise CannotSwitch(
            f"Settings of {dataset} changed since its runs were evaluated ({', '.join(changed_names)}). "
            "Evaluate the runs again, then review the scores."
        )
    waiting_count = waiting_runs(rescore).count()
    if waiting_count:
        raise CannotSwitch(f"Runs not evaluated yet: {waiting_count:,}. Wait for them, or evaluate again.")


def _require_baseline(rescore: Rescore, moves: Sequence[MovedEntry], stays: Sequence[UnmovedEntry]) -> None:
    """Raise CannotSwitch if the board's baseline does not move and no other baseline does."""
    if any(move.is_baseline for move in moves):
        return
    prefix = f"scored:{rescore.from_qrels.version_id}:{rescore.from_qrels_id}:"
    for stay in stays:
        if stay.entry.is_baseline and stay.entry.comparison_group.startswith(prefix):
            raise CannotSwitch(
                f"The baseline, {stay.entry.system}, could not be rescored: {stay.reason}. Name another baseline first."
            )


def _save_moves(moves: Sequence[MovedEntry]) -> None:
    """Assign and save new evaluations and published values of entries and seeds, replacing the group's baseline."""
    if any(move.is_baseline for move in moves):  # replace earlier baselines of the group
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
