"""Find how sure a board's differences are, and keep it: the only writer of `Certainty`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.statistics.comparison import count_wins, intervals
from evaluation.statistics.randomisation import PermutedSums, corrected_pairs, holm, rank_intervals
from leaderboard.core.measures import better
from leaderboard.core.work_requests import request_certainty
from leaderboard.models import Certainty, Dataset, Entry, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.results.pooled import left_out_scores
from leaderboard.results.records import per_query_means
from leaderboard.results.significance.statements import ComparedBoard, compared_boards, is_known
from leaderboard.results.significance.types import METHOD, EntryCertainty, MeasureCertainty, TestSettings

Values = NDArray[np.float64]
#: Told the share of the work that is done, 0 to 1; what it raises stops the work.
Progress = Callable[[float], None]

#: The ends of intervals, each of shape (entries,).
Ends = tuple[Values, Values]

#: Values by query that are held at once: 64 MB, and as much again for each copy of them and of differences. Larger
#: boards are read several times, some measures each time.
_HELD = 8_000_000
#: What is kept of a score, more than any page shows, and of a p-value, which may be very small.
_SCORE, _P = "{:.6f}", "{:.5g}"


class BoardAnalysis(NamedTuple):
    """What was found of a board as it was when it was read.

    Where it had been so before, `same_as` is the key of the row that has the content, and this has none.
    """

    board: ComparedBoard
    content: Mapping[str, Mapping[str, Any]]
    same_as: int | None = None


def analyse_board(dataset: Dataset, progress: Progress = lambda share: None) -> BoardAnalysis | None:
    """Find it, writing nothing. None for hidden judgements, without a result, and where it was found already."""
    board = compared_boards([dataset.pk]).get(dataset.pk)
    if board is None or is_known(board):
        return None
    earlier = Certainty.objects.filter(dataset=dataset, key=board.key, same_as=None).order_by("from_revision")
    if found := earlier.values_list("pk", flat=True).first():
        return BoardAnalysis(board, {}, found)
    content: dict[str, dict[str, Any]] = {}
    for read in _by_measure(board):
        for (measure, entries, values), (of_scores, of_differences) in zip(
            read, _intervals(read, board), strict=True
        ):
            progress(len(content) / len(board.measures))
            certainty = measure_certainty(measure, entries, values, board, of_scores, of_differences)
            if measure == dataset.primary_measure:
                certainty = _with_teams_left_out(certainty, dataset, board, progress)
            content[measure] = certainty.as_dict()
    return BoardAnalysis(board, content)


def _with_teams_left_out(
    found: MeasureCertainty, dataset: Dataset, board: ComparedBoard, progress: Progress
) -> MeasureCertainty:
    """With each score as it is without the documents that are judged because of its team alone.

    What was found on the same judgements before still holds, since no later run feeds their pools.
    """
    assert dataset.current_qrels is not None  # `compared_boards` has no other datasets
    kept = Certainty.objects.filter(
        dataset=dataset, comparison_group=board.comparison_group, content__has_key=found.measure
    )
    earlier = kept.order_by("-from_revision").values_list("content", flat=True).first()
    known = MeasureCertainty.from_dict(found.measure, earlier[found.measure]).entries if earlier else {}
    known_scores = {pk: one.without_own for pk, one in known.items() if one.without_own is not None}
    scores, gone = left_out_scores(
        dataset.current_qrels, found.measure, list(found.entries), known_scores, progress
    )
    entries = {
        pk: one._replace(without_own=float(_SCORE.format(scores[pk])) if pk in scores else None)
        for pk, one in found.entries.items()
    }  # fmt: skip
    return replace(found, entries=entries, pool_gone=gone)


def _intervals(
    read: Sequence[tuple[str, list[int], Values]], board: ComparedBoard
) -> Iterator[tuple[Ends, Ends]]:
    """Yield for each measure the ends of the intervals of means, and of the differences from the baseline.

    The latter have no column if the baseline lacks the measure. All are computed together, because most of the work is
    to draw the resamples.
    """
    parts = []
    for _, entries, values in read:
        differences = values[:, :0]
        if board.baseline is not None and board.baseline in entries:
            differences = values - values[:, [entries.index(board.baseline)]]
        parts += [values, differences]
    settings = TestSettings()
    columns = np.hstack(parts)
    low, high = intervals(columns, resamples=settings.resamples, level=settings.level, seed=settings.seed)
    bounds = np.cumsum([part.shape[1] for part in parts])[:-1]
    ends = zip(np.split(low, bounds), np.split(high, bounds), strict=True)
    yield from zip(ends, ends, strict=True)


@transaction.atomic
def store_certainty(finding: BoardAnalysis) -> Certainty | None:
    """Keep it as of a new revision of the board, unless the board has other entries by now; None then."""
    dataset = lock_board(finding.board.dataset)
    present = compared_boards([dataset.pk]).get(dataset.pk)
    if present is None or present.key != finding.board.key or is_known(present):
        return None
    return Certainty.objects.create(
        dataset=dataset,
        from_revision=board_changed(dataset, Kind.CERTAINTY, touched=()),
        comparison_group=present.comparison_group,
        key=present.key,
        settings=TestSettings().as_dict(),
        content=finding.content,
        same_as_id=finding.same_as,
        computed_at=timezone.now(),
    )


def measure_certainty(
    measure: str,
    entries: Sequence[int],
    values: Values,
    board: ComparedBoard,
    of_scores: Ends,
    of_differences: Ends,
) -> MeasureCertainty:
    """What can be said of one measure.

    `values` has the shape (queries, entries), `entries` are their ids. `of_scores` are the ends of the intervals of
    their means, `of_differences` those of their differences to the baseline, empty where it has none. Of equal means
    the first is the best. Of the `board` it is asked which entry is the baseline, and which ones are ranked apart.
    """
    settings = TestSettings()
    lower_is_better = better(measure) == "lower"
    sums = PermutedSums(values, permutations=settings.permutations, seed=settings.seed)
    means = values.mean(axis=0)
    scores = -means if lower_is_better else means
    ranked = np.array(
        [place for place, entry in enumerate(entries) if entry not in board.closed], dtype=np.intp
    )
    columns: dict[str, Sequence[Any]] = {
        "low": _rounded(of_scores[0], _SCORE),
        "high": _rounded(of_scores[1], _SCORE),
    }
    best = int(ranked[np.argmax(scores[ranked])]) if len(ranked) else None
    if best is not None:
        columns |= _over_all_pairs(sums, scores, ranked, best)
    baseline = entries.index(board.baseline) if board.baseline in entries else None
    if baseline is not None:
        columns |= _against_baseline(sums, means - means[baseline], of_differences, baseline)
        counts = count_wins(values, baseline, lower_is_better=lower_is_better)
        columns |= {name: _without(counted.tolist(), baseline) for name, counted in counts._asdict().items()}
    found = [
        EntryCertainty(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]
    return MeasureCertainty(
        measure,
        len(values),
        board.baseline if baseline is not None else None,
        entries[best] if best is not None else None,
        dict(zip(entries, found, strict=True)),
    )


def _against_baseline(
    sums: PermutedSums, differences: Values, ends: Ends, baseline: int
) -> dict[str, list[Any]]:
    """Each mean difference to the baseline, its interval, its p-value, and that corrected over the board."""
    p = sums.p_values(baseline)
    p[baseline] = np.nan
    return {
        "delta": _without(_rounded(differences, _SCORE), baseline),
        "delta_low": _without(_rounded(ends[0], _SCORE), baseline),
        "delta_high": _without(_rounded(ends[1], _SCORE), baseline),
        "p_baseline": _rounded(p, _P),
        "p_baseline_corrected": _rounded(holm(p), _P),
    }


def _over_all_pairs(
    sums: PermutedSums, scores: Values, ranked: NDArray[np.intp], best: int
) -> dict[str, list[Any]]:
    """What tests of all pairs tell: p-values against the best, and between which ranks each of `ranked` lies."""
    settings = TestSettings()
    corrected = corrected_pairs(sums, patterns=settings.pairs_permutations)
    of_ranked = corrected[np.ix_(ranked, ranked)]
    first, last = rank_intervals(scores[ranked], of_ranked, level=settings.alpha)
    ranks: dict[str, list[int | None]] = {name: [None] * len(scores) for name in ("rank_low", "rank_high")}
    for place, low, high in zip(ranked, first.tolist(), last.tolist(), strict=True):
        ranks["rank_low"][place], ranks["rank_high"][place] = low, high
    return {
        "p_best": _without(_rounded(sums.p_values(best), _P), best),
        "p_best_corrected": _without(_rounded(corrected[best], _P), best),
        **ranks,
    }


def _without(found: Sequence[Any], place: int) -> list[Any]:
    """With nothing at one place: a system is not compared with itself."""
    return [None if at == place else one for at, one in enumerate(found)]


def _rounded(values: Values, digits: str) -> list[float | None]:
    return [None if np.isnan(value) else float(digits.format(value)) for value in values]


def _by_measure(board: ComparedBoard) -> Iterator[list[tuple[str, list[int], Values]]]:
    """Each measure with the entries that have it and their values, shape (queries, entries).

    As many measures at a time as may be held at once.
    """
    measures, most = list(board.measures), 1
    while measures:
        read: dict[str, dict[int, Values]] = {}
        rows = Entry.objects.filter(pk__in=board.entries).order_by("published_at", "pk")
        rows = rows.select_related("evaluation").prefetch_related("seeds__evaluation")
        for entry in rows.iterator(chunk_size=50):
            names, values = per_query_means(entry)
            if not read:
                most = max(1, _HELD // (len(values) * len(board.entries)))
                read = {name: {} for name in measures[:most]}
            for name in read.keys() & set(names):
                read[name][entry.pk] = values[:, names.index(name)].copy()
        found = [
            (name, entries, np.column_stack([columns[pk] for pk in entries]))
            for name, columns in read.items()
            if (entries := [pk for pk in board.entries if pk in columns])
        ]
        if found:
            yield found
        measures = measures[most:]


def request_missing_certainty() -> int:
    """Ask for the boards that have nothing found by the present method, each once; how many these were. One query.

    Every later change of a board asks by itself, in its own transaction.
    """
    of_dataset = {"dataset": OuterRef("pk")}
    scored = Entry.objects.public().exclude(provenance=Entry.Provenance.REPORTED)
    asked = WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, payload__method=METHOD)
    found = Certainty.objects.filter(key__startswith=f"{METHOD}:")
    missing = Dataset.objects.filter(
        ~Exists(found.filter(**of_dataset)),
        ~Exists(asked.filter(**of_dataset)),
        Exists(scored.filter(**of_dataset)),
        hidden=False,
        current_qrels__isnull=False,
    )
    datasets = list(missing.order_by("pk").values_list("pk", flat=True))
    for dataset in datasets:
        request_certainty(dataset, METHOD)
    return len(datasets)


@transaction.atomic
def request_if_changed(dataset_id: int) -> bool:
    """Ask once more where what was found last is not of the board as it is now; whether it was asked.

    For the end of each finding: a change that was not committed when its request was taken up has been looked for in
    vain. It holds the board's row, so with that locked it is either seen here or still to ask.
    """
    lock_boards([dataset_id])
    board = compared_boards([dataset_id]).get(dataset_id)
    if board is None or is_known(board):
        return False
    request_certainty(dataset_id)
    return True
