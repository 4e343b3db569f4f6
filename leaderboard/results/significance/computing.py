"""Computation of a board's significance; the only writer of `Certainty`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.statistics.comparison import count_wins, intervals
from evaluation.statistics.randomisation import PermutedSums, corrected_pairs, holm, rank_intervals
from leaderboard.core.measures import better
from leaderboard.core.work_requests import request_certainty
from leaderboard.models import BenchmarkMember, Certainty, Dataset, Entry, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.results.pooled import left_out_scores
from leaderboard.results.records import per_query_means
from leaderboard.results.significance.statements import ComparedBoard, compared_boards, is_known
from leaderboard.results.significance.types import METHOD, EntryCertainty, MeasureCertainty, TestSettings

Values = NDArray[np.float64]
#: Progress callback with the fraction done, 0 to 1. It may raise to stop the work.
Progress = Callable[[float], None]

#: Lower and upper bounds of intervals, each of shape (entries,).
Bounds = tuple[Values, Values]

#: Maximum number of per-query values in memory at once: 64 MB, plus as much for each copy and for differences.
#: Larger boards are read several times, a batch of measures each time.
_VALUES_PER_BATCH = 8_000_000
#: Stored precision of scores (more than any page shows) and of p-values (which may be very small).
_SCORE_FORMAT, _P_FORMAT = "{:.6f}", "{:.5g}"
#: Version of the computation on boards of datasets and of benchmarks; increasing it requests all missing results.
_REQUESTED_METHOD = f"{METHOD}.1"


class BoardAnalysis(NamedTuple):
    """Significance results of a board, with the state of the board from which they were computed.

    If the same state was analyzed before, `same_as` is the key of the row with the results, and `content` is empty.
    """

    board: ComparedBoard
    content: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    same_as: int | None = None


def analyse_board(dataset: Dataset, progress: Progress = lambda share: None) -> BoardAnalysis | None:
    """Compute a board's significance without storing it.

    Returns None for hidden judgments, without results, and if the significance is already stored.
    """
    board = compared_boards([dataset.pk]).get(dataset.pk)
    if board is None or is_known(board):
        return None
    previous_rows = Certainty.objects.filter(dataset=dataset, key=board.key, same_as=None).order_by("from_revision")
    if previous := previous_rows.only("settings").first():
        return BoardAnalysis(board, {}, previous.settings, previous.pk)
    content: dict[str, dict[str, Any]] = {}
    settings = TestSettings()
    for batch in _iterate_batches(board):
        for (measure, entries, values), (score_bounds, difference_bounds) in zip(
            batch, _intervals(batch, board), strict=True
        ):
            progress(len(content) / len(board.measures))
            settings = settings.with_count(len(values))
            certainty = measure_certainty(measure, entries, values, board, score_bounds, difference_bounds)
            if measure == dataset.primary_measure:
                certainty = _add_leave_one_out_scores(certainty, dataset, board, progress)
            content[measure] = certainty.as_dict()
    return BoardAnalysis(board, content, settings.as_dict())


def _add_leave_one_out_scores(
    certainty: MeasureCertainty, dataset: Dataset, board: ComparedBoard, progress: Progress
) -> MeasureCertainty:
    """Return the certainty with the score of each entry without documents that only its own team contributed.

    These are the entries' `without_own`, or None; `pool_gone` is the reason for missing ones. Scores computed earlier
    on the same judgments are reused, because later runs do not feed their pools.
    """
    assert dataset.current_qrels is not None  # `compared_boards` has no other datasets.
    previous_rows = Certainty.objects.filter(
        dataset=dataset, comparison_group=board.comparison_group, content__has_key=certainty.measure
    )
    previous_content = previous_rows.order_by("-from_revision").values_list("content", flat=True).first()
    previous_entries = (
        MeasureCertainty.from_dict(certainty.measure, previous_content[certainty.measure]).entries
        if previous_content
        else {}
    )
    known_scores = {pk: entry.without_own for pk, entry in previous_entries.items() if entry.without_own is not None}
    scores, missing_reason = left_out_scores(
        dataset.current_qrels, certainty.measure, list(certainty.entries), known_scores, progress
    )
    entries = {
        pk: entry._replace(without_own=float(_SCORE_FORMAT.format(scores[pk])) if pk in scores else None)
        for pk, entry in certainty.entries.items()
    }  # fmt: skip
    return replace(certainty, entries=entries, pool_gone=missing_reason)


def _intervals(batch: Sequence[tuple[str, list[int], Values]], board: ComparedBoard) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield, for each measure, the interval bounds of the entries' means and of their differences from the baseline.

    The latter are empty if the baseline lacks the measure. All columns share one call, because drawing the resamples
    dominates the cost.
    """
    parts = []
    for _, entries, values in batch:
        differences = values[:, :0]
        if board.baseline is not None and board.baseline in entries:
            differences = values - values[:, [entries.index(board.baseline)]]
        parts += [values, differences]
    settings = TestSettings()
    columns = np.hstack(parts)
    low, high = intervals(columns, resamples=settings.resamples, level=settings.level, seed=settings.seed)
    split_points = np.cumsum([part.shape[1] for part in parts])[:-1]
    bounds = zip(np.split(low, split_points), np.split(high, split_points), strict=True)
    yield from zip(bounds, bounds, strict=True)


def analyse_values(measure: str, columns: Mapping[int, Values], board: ComparedBoard) -> MeasureCertainty:
    """Compute the significance of entries under one measure. `columns` maps entry ids to per-query values."""
    entries, values = list(columns), np.column_stack(list(columns.values()))
    ((score_bounds, difference_bounds),) = _intervals([(measure, entries, values)], board)
    return measure_certainty(measure, entries, values, board, score_bounds, difference_bounds)


@transaction.atomic
def store_certainty(analysis: BoardAnalysis) -> Certainty | None:
    """Store an analysis under a new board revision, and return its row.

    Returns None, without storing it, if the board has changed since or its significance is already stored.
    """
    dataset = lock_board(analysis.board.dataset)
    current_board = compared_boards([dataset.pk]).get(dataset.pk)
    if current_board is None or current_board.key != analysis.board.key or is_known(current_board):
        return None
    return Certainty.objects.create(
        dataset=dataset,
        from_revision=board_changed(dataset, Kind.CERTAINTY, row_entries=()),
        comparison_group=current_board.comparison_group,
        key=current_board.key,
        settings=analysis.settings,
        content=analysis.content,
        same_as_id=analysis.same_as,
        computed_at=timezone.now(),
    )


def measure_certainty(
    measure: str,
    entries: Sequence[int],
    values: Values,
    board: ComparedBoard,
    score_bounds: Bounds,
    difference_bounds: Bounds,
) -> MeasureCertainty:
    """Compute the significance of all entries under one measure.

    `entries` are ids in the order of the columns of `values`, which has the shape (queries, entries). The `board`
    names the baseline and the separately ranked entries. The intervals of differences are empty if the baseline lacks
    the measure. The first of several entries with equal means is the best.
    """
    settings = TestSettings()
    lower_is_better = better(measure) == "lower"
    sums = PermutedSums(values, permutations=settings.permutations, seed=settings.seed)
    means = values.mean(axis=0)
    scores = -means if lower_is_better else means
    ranked_columns = np.array(
        [column for column, entry in enumerate(entries) if entry not in board.never_best], dtype=np.intp
    )
    columns: dict[str, Sequence[Any]] = {
        "low": _round_values(score_bounds[0], _SCORE_FORMAT),
        "high": _round_values(score_bounds[1], _SCORE_FORMAT),
    }
    best_column = int(ranked_columns[np.argmax(scores[ranked_columns])]) if len(ranked_columns) else None
    if best_column is not None:
        columns |= _pair_columns(sums, scores, ranked_columns, best_column)
    baseline = entries.index(board.baseline) if board.baseline in entries else None
    if baseline is not None:
        columns |= _baseline_columns(sums, means - means[baseline], difference_bounds, baseline)
        counts = count_wins(values, baseline, lower_is_better=lower_is_better)
        columns |= {
            name: _mask_position(query_counts.tolist(), baseline) for name, query_counts in counts._asdict().items()
        }
    certainties = [
        EntryCertainty(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]
    return MeasureCertainty(
        measure,
        len(values),
        board.baseline if baseline is not None else None,
        entries[best_column] if best_column is not None else None,
        dict(zip(entries, certainties, strict=True)),
    )


def _baseline_columns(sums: PermutedSums, differences: Values, bounds: Bounds, baseline: int) -> dict[str, list[Any]]:
    """Return the columns of comparisons with the baseline: mean differences, their intervals, and p-values.

    P-values are uncorrected and corrected by Holm's method. All values of the baseline itself are None.
    """
    p = sums.p_values(baseline)
    p[baseline] = np.nan
    return {
        "delta": _mask_position(_round_values(differences, _SCORE_FORMAT), baseline),
        "delta_low": _mask_position(_round_values(bounds[0], _SCORE_FORMAT), baseline),
        "delta_high": _mask_position(_round_values(bounds[1], _SCORE_FORMAT), baseline),
        "p_baseline": _round_values(p, _P_FORMAT),
        "p_baseline_corrected": _round_values(holm(p), _P_FORMAT),
    }


def _pair_columns(
    sums: PermutedSums, scores: Values, ranked_columns: NDArray[np.intp], best_column: int
) -> dict[str, list[Any]]:
    """Return p-values against the best and the next entry, and the range of possible ranks, from tests of all pairs.

    Ranks are computed among `ranked_columns` only, and None for other entries.
    """
    settings = TestSettings()
    corrected_p = corrected_pairs(sums, patterns=settings.pairs_permutations)
    ranked_pairs = corrected_p[np.ix_(ranked_columns, ranked_columns)]
    first_ranks, last_ranks = rank_intervals(scores[ranked_columns], ranked_pairs, level=settings.alpha)
    ranks: dict[str, list[int | None]] = {name: [None] * len(scores) for name in ("rank_low", "rank_high")}
    for column, low, high in zip(ranked_columns, first_ranks.tolist(), last_ranks.tolist(), strict=True):
        ranks["rank_low"][column], ranks["rank_high"][column] = low, high
    p_next = np.full(len(scores), np.nan)
    order = ranked_columns[np.argsort(-scores[ranked_columns], kind="stable")]
    p_next[order[:-1]] = corrected_p[order[:-1], order[1:]]
    return {
        "p_best": _mask_position(_round_values(sums.p_values(best_column), _P_FORMAT), best_column),
        "p_best_corrected": _mask_position(_round_values(corrected_p[best_column], _P_FORMAT), best_column),
        "p_next": _round_values(p_next, _P_FORMAT),
        **ranks,
    }


def _mask_position(values: Sequence[Any], position: int) -> list[Any]:
    """Return the values with None at one position: a system is not compared with itself."""
    return [None if index == position else value for index, value in enumerate(values)]


def _round_values(values: Values, digits: str) -> list[float | None]:
    return [None if np.isnan(value) else float(digits.format(value)) for value in values]


def _iterate_batches(board: ComparedBoard) -> Iterator[list[tuple[str, list[int], Values]]]:
    """Yield batches of measures, each with the ids of its entries and values of shape (queries, entries).

    The size of a batch is limited by memory. Measures that no entry has are omitted.
    """
    measures, batch_size = list(board.measures), 1
    while measures:
        columns_by_measure: dict[str, dict[int, Values]] = {}
        rows = Entry.objects.filter(pk__in=board.entries).order_by("published_at", "pk")
        rows = rows.select_related("evaluation").prefetch_related("seeds__evaluation")
        for entry in rows.iterator(chunk_size=50):
            names, values = per_query_means(entry)
            if not columns_by_measure:
                batch_size = max(1, _VALUES_PER_BATCH // (len(values) * len(board.entries)))
                columns_by_measure = {name: {} for name in measures[:batch_size]}
            for name in columns_by_measure.keys() & set(names):
                columns_by_measure[name][entry.pk] = values[:, names.index(name)].copy()
        batch = [
            (name, entries, np.column_stack([columns[pk] for pk in entries]))
            for name, columns in columns_by_measure.items()
            if (entries := [pk for pk in board.entries if pk in columns])
        ]
        if batch:
            yield batch
        measures = measures[batch_size:]


def request_missing_certainty() -> int:
    """Request an analysis of each board that the current method has not analyzed, and return their number.

    This includes datasets of benchmarks, which are compared even without tests of their own. Later changes of a board
    request an analysis in their own transactions. Takes one query.
    """
    same_dataset = {"dataset": OuterRef("pk")}
    scored_entries = Entry.objects.public().exclude(provenance=Entry.Provenance.REPORTED)
    requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, payload__method=_REQUESTED_METHOD)
    certainties = Certainty.objects.filter(key__startswith=f"{METHOD}:")
    is_tested = Q(Exists(scored_entries.filter(**same_dataset)), hidden=False, current_qrels__isnull=False)
    is_counted = Q(Exists(BenchmarkMember.objects.filter(**same_dataset, counted=True)))
    unanalyzed_datasets = Dataset.objects.filter(
        is_tested & ~Q(Exists(certainties.filter(**same_dataset))) | is_counted,
        ~Exists(requests.filter(**same_dataset)),
    )
    datasets = list(unanalyzed_datasets.order_by("pk").values_list("pk", flat=True))
    for dataset in datasets:
        request_certainty(dataset, _REQUESTED_METHOD)
    return len(datasets)


@transaction.atomic
def request_if_changed(dataset_id: int) -> bool:
    """Request another analysis if the stored one does not match the current board; return whether it was requested.

    Call this after each analysis. A change that was uncommitted when the analysis began was missed; locking the
    board's row makes it visible here, or lets its own request follow.
    """
    lock_boards([dataset_id])
    board = compared_boards([dataset_id]).get(dataset_id)
    if board is None or is_known(board):
        return False
    request_certainty(dataset_id)
    return True
