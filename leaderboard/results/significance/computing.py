"""Find how sure a board's differences are, and keep it: the only writer of `Certainty`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.statistics import LETTERS, PermutedSums, count_wins, holm, intervals, tiers
from leaderboard.core.measures import better
from leaderboard.models import Certainty, Dataset, Entry
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.records import per_query_means
from leaderboard.results.significance.board import ComparedBoard, compared_boards, is_known
from leaderboard.results.significance.types import EntryCertainty, MeasureCertainty, Settings

Values = NDArray[np.float64]
#: Told the share of the work that is done, 0 to 1; what it raises stops the work.
Progress = Callable[[float], None]

#: Values by query that are held at once: 192 MB. Larger boards are read several times, some measures each time.
_HELD = 24_000_000
#: What is kept of a score, more than any page shows, and of a p-value, which may be very small.
_SCORE, _P = "{:.6f}", "{:.5g}"


class Finding(NamedTuple):
    """What was found of a board as it was when it was read.

    Where it had been so before, `same_as` is the key of the row that has the content, and this has none.
    """

    board: ComparedBoard
    content: Mapping[str, Mapping[str, Any]]
    same_as: int | None = None


def compute_certainty(dataset: Dataset) -> Certainty | None:
    """Find and keep what there is to say of the dataset's board; None where there is nothing, or nothing new."""
    finding = find_certainty(dataset)
    return keep_certainty(finding) if finding is not None else None


def find_certainty(dataset: Dataset, progress: Progress = lambda share: None) -> Finding | None:
    """Find it, writing nothing. None for hidden judgements, without a result, and where it was found already."""
    board = compared_boards([dataset.pk]).get(dataset.pk)
    if board is None or is_known(board):
        return None
    earlier = Certainty.objects.filter(dataset=dataset, key=board.key, same_as=None).order_by("from_revision")
    if found := earlier.values_list("pk", flat=True).first():
        return Finding(board, {}, found)
    content: dict[str, dict[str, Any]] = {}
    for read in _by_measure(board):
        # Together, since most of the work is to draw the resamples.
        low, high = _intervals([values for _, _, values in read])
        for measure, entries, values in read:
            progress(len(content) / len(board.measures))
            ends = low[: len(entries)], high[: len(entries)]
            low, high = low[len(entries) :], high[len(entries) :]
            content[measure] = certainty_of(measure, entries, values, board, ends).as_dict()
    return Finding(board, content)


def _intervals(values: Sequence[Values]) -> tuple[Values, Values]:
    settings = Settings()
    columns = np.hstack(values)
    return intervals(columns, resamples=settings.resamples, level=settings.level, seed=settings.seed)


@transaction.atomic
def keep_certainty(finding: Finding) -> Certainty | None:
    """Keep it as of a new revision of the board, unless the board has other entries by now; None then."""
    lock_boards([finding.board.dataset])
    dataset = Dataset.objects.get(pk=finding.board.dataset)
    present = compared_boards([dataset.pk]).get(dataset.pk)
    if present is None or present.key != finding.board.key or is_known(present):
        return None
    return Certainty.objects.create(
        dataset=dataset,
        from_revision=board_changed(dataset, Kind.CERTAINTY),
        comparison_group=present.comparison_group,
        key=present.key,
        settings=Settings().as_dict(),
        content=finding.content,
        same_as_id=finding.same_as,
        computed_at=timezone.now(),
    )


def certainty_of(
    measure: str,
    entries: Sequence[int],
    values: Values,
    board: ComparedBoard,
    ends: tuple[Values, Values],
) -> MeasureCertainty:
    """What can be said of one measure.

    `values` has the shape (queries, entries), `entries` are their ids, `ends` those of their intervals, each of shape
    (entries,). Of equal means the first is the best. Of the `board` it is asked which entry is the baseline, and which
    ones are ranked apart.
    """
    settings = Settings()
    lower_is_better = better(measure) == "lower"
    low, high = ends
    sums = PermutedSums(values, permutations=settings.permutations, seed=settings.seed)
    means = values.mean(axis=0)
    scores = -means if lower_is_better else means
    ranked = np.array(
        [place for place, entry in enumerate(entries) if entry not in board.closed], dtype=np.intp
    )
    letters = _letters(scores, ranked, sums)
    columns: dict[str, Sequence[Any]] = {
        "low": _rounded(low, _SCORE),
        "high": _rounded(high, _SCORE),
        "group": letters,
    }
    if len(ranked):
        columns |= _against("best", sums, int(ranked[np.argmax(scores[ranked])]))
    if board.baseline in entries:
        place = entries.index(board.baseline)
        columns |= _against("baseline", sums, place)
        counts = count_wins(values, place, lower_is_better=lower_is_better)
        columns |= {name: counted.tolist() for name, counted in counts._asdict().items()}
    found = [
        EntryCertainty(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]
    return MeasureCertainty(
        measure,
        len(values),
        board.baseline if board.baseline in entries else None,
        _anchors(entries, scores, letters),
        dict(zip(entries, found, strict=True)),
    )


def _letters(scores: Values, ranked: NDArray[np.intp], sums: PermutedSums) -> list[str]:
    """The groups of the entries that are ranked together; the others have none."""
    found = [""] * len(scores)
    letters = tiers(
        scores[ranked], lambda anchor: sums.p_values(int(ranked[anchor]))[ranked], level=Settings().alpha
    )
    for place, letter in zip(ranked, letters, strict=True):
        found[place] = letter
    return found


def _against(whom: str, sums: PermutedSums, anchor: int) -> dict[str, list[float | None]]:
    """The p-values against one entry, raw and corrected over all others; none of the entry itself."""
    raw = sums.p_values(anchor)
    raw[anchor] = np.nan
    return {
        f"p_{whom}": _rounded(holm(raw), _P),
        f"raw_p_{whom}": _rounded(raw, _P),
    }


def _rounded(values: Values, digits: str) -> list[float | None]:
    return [None if np.isnan(value) else float(digits.format(value)) for value in values]


def _anchors(entries: Sequence[int], scores: Values, letters: Sequence[str]) -> dict[str, int]:
    """The best entry of each tier, by letter."""
    found = {}
    for letter in LETTERS:
        members = [place for place, of in enumerate(letters) if of == letter]
        if members:
            found[letter] = entries[max(members, key=scores.__getitem__)]
    return found


def _by_measure(board: ComparedBoard) -> Iterator[list[tuple[str, list[int], Values]]]:
    """Each measure with the entries that have it and their values, shape (queries, entries).

    As many measures at a time as may be held at once.
    """
    measures, most = list(board.measures), 1
    while measures:
        read: dict[str, dict[int, Values]] = {}
        for entry in _entries(board):
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


def _entries(board: ComparedBoard) -> Iterator[Entry]:
    entries = Entry.objects.filter(pk__in=board.entries).order_by("published_at", "pk")
    return entries.select_related("evaluation").prefetch_related("seeds__evaluation").iterator(chunk_size=50)
