"""What may be said of a result in words: whether it is better than the baseline, and whether it ties with the best.

Every sentence, colour, card, feed and badge takes its certainty from `statements`, which knows how a dataset's
judgements are protected. Open boards say what their tests found. Hidden ones say no more than follows from values that
were published (docs/decisions/0019).

The contamination gap is that of systems that were scored on a dataset and on its twin (`evaluation.statistics.gap`). An
open half gives the bootstrap interval that its board has of each row's difference to the baseline. A hidden half gives
published values and the least significant difference, which bounds how they spread: a gap tells no more of hidden
judgements than these do (docs/decisions/0019). It is computed when it is read, and stored nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from typing import NamedTuple

from django.db.models import Q

from evaluation.statistics.gap import Interval, gap_between, published_interval
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.models import Dataset, Entry
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import BoardRows, Revision
from leaderboard.results.kinds import REPORTED, present_group
from leaderboard.results.significance.hidden import (
    PublishedComparison,
    comparison_at,
    published_comparisons,
)
from leaderboard.results.significance.reading import PastBoard, read_certainty, read_certainty_at
from leaderboard.results.significance.types import (
    ALPHA,
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Certainty of one entry under one measure; None where it is not known, or not published.

    `better` and `worse` compare with the baseline at 0.05, in the entry's own, uncorrected test; False means that no
    difference was shown. `p`, `interval`, and `p_corrected` refer to the difference from the baseline; the correction
    covers the `comparisons` of the board with its baseline. `p_best` refers to the difference from the best, corrected
    over all pairs of the board. These, `worse`, and `ranks`, the first and the last rank that the tests of all pairs
    leave open, are known on open judgments only. The best ties with itself. `gap` is the contamination gap between the
    dataset and its twin, of the primary measure.
    """

    better: bool | None = None
    worse: bool | None = None
    p: float | None = None
    p_corrected: float | None = None
    comparisons: int = 0
    interval: tuple[float, float] | None = None
    tied_with_best: bool | None = None
    p_best: float | None = None
    ranks: tuple[int, int] | None = None
    gap: Gap | None = None

    @property
    def holds_after_correction(self) -> bool:
        """Whether the difference to the baseline is significant among all comparisons with it."""
        return self.p_corrected is not None and self.p_corrected < ALPHA


UNKNOWN = Statement()


@dataclass(frozen=True, slots=True)
class BoardStatements:
    """The statements of one board: of what its tests found, or over hidden judgements of its published scores.

    `gaps` are those of its entries, by their ids, in the measure `gaps_in`.
    """

    certainty: BoardCertainty | None = None
    published: PublishedComparison | None = None
    gaps: Mapping[int, Gap] = field(default_factory=dict)
    gaps_in: str = ""

    def of(self, entry: int, measure: str) -> Statement:
        """What may be said of the entry with this id; over hidden judgements of the primary measure alone."""
        gap = self.gaps.get(entry) if measure == self.gaps_in else None
        said = self._of(entry, measure)
        return replace(said, gap=gap) if gap is not None else said

    def _of(self, entry: int, measure: str) -> Statement:
        if self.published is not None and measure == self.published.measure:
            tied = entry in self.published.tied if entry in self.published.ranked else None
            return Statement(better=self.published.better.get(entry), tied_with_best=tied)
        found = self.tests(measure)
        one = found.of(entry) if found is not None else None
        if found is None or one is None:
            return UNKNOWN
        sign = numbers.direction(one.delta, measure) if differs(one) else ""
        known = one.p_baseline is not None
        return Statement(
            better=sign == "up" if known else None,
            worse=sign == "down" if known else None,
            p=one.p_baseline,
            p_corrected=one.p_baseline_corrected,
            comparisons=found.comparisons,
            interval=one.delta_interval,
            tied_with_best=one.ties_with_best,
            p_best=one.p_best_corrected,
            ranks=one.ranks,
        )

    def tests(self, measure: str) -> MeasureCertainty | None:
        """Return the tests of one measure, None where there are none."""
        return self.certainty.of(measure) if self.certainty is not None else None

    def pairs(self, measure: str) -> int:
        """Return the number of pairs that decide what is not separable from the best."""
        if self.published is not None:
            return comb(len(self.published.ranked), 2)
        found = self.tests(measure)
        return found.pairs if found is not None else 0

    def tied_with_best(self, measure: str) -> frozenset[int]:
        """The ids of the entries that may be the best, the best among them; empty where that is not known."""
        if self.published is not None:
            return self.published.tied if measure == self.published.measure else frozenset()
        found = self.tests(measure)
        if found is None:
            return frozenset()
        return frozenset(entry for entry, one in found.entries.items() if one.ties_with_best)

    def least_difference(self, measure: str) -> float | None:
        """Over hidden judgements the least difference to the baseline that is significant, where it is known."""
        if self.published is None or measure != self.published.measure:
            return None
        return self.published.least_difference


#: Of a board of which nothing may be said, or is known.
NOTHING_SAID = BoardStatements()


def statements(datasets: Collection[int]) -> Mapping[int, BoardStatements]:
    """Return the statements of each dataset's present board, by the dataset's id; every id has an answer."""
    twins = twins_of(datasets)
    wanted = {*datasets, *(half for each in twins for half in each[:2])}
    certain = read_certainty(wanted)
    published = published_comparisons([dataset for dataset in wanted if dataset not in certain])
    gaps = gaps_between(twins, certain, published, present_results(twins)) if twins else {}
    return _by_dataset(datasets, twins, certain, published, gaps)


def statements_at(
    revisions: Mapping[int, Revision], rows: Mapping[int, BoardRows], twins: Sequence[Twins] = ()
) -> Mapping[int, BoardStatements]:
    """Return the statements of the boards at these revisions, by the dataset's id.

    `rows` are those of the revisions. `twins` have gaps if both halves are among the revisions.
    """
    boards = {dataset: _board_at(revision, rows[dataset]) for dataset, revision in revisions.items()}
    certain = read_certainty_at({dataset: board for dataset, board in boards.items() if board.entries})
    published = {
        dataset: comparison
        for dataset, board in boards.items()
        if dataset not in certain
        and (comparison := comparison_at(revisions[dataset].facts, board.entries, board.baseline))
    }
    halves = [_twins_at(each, revisions) for each in twins]
    results = {
        dataset: {row.pk: (row.system_id, row.configuration) for row in _scored(rows[dataset])}
        for each in halves
        for dataset in each[:2]
    }
    gaps = gaps_between(halves, certain, published, results)
    return _by_dataset(revisions, halves, certain, published, gaps)


def _by_dataset(
    datasets: Collection[int],
    twins: Sequence[Twins],
    certain: Mapping[int, BoardCertainty],
    published: Mapping[int, PublishedComparison],
    gaps: Mapping[int, Mapping[int, Gap]],
) -> Mapping[int, BoardStatements]:
    measures = {half: each.measure for each in twins for half in each[:2]}
    return {
        dataset: BoardStatements(
            certain.get(dataset), published.get(dataset), gaps.get(dataset, {}), measures.get(dataset, "")
        )
        for dataset in datasets
    }


def _board_at(revision: Revision, rows: BoardRows) -> PastBoard:
    """Return the entries of the revision that were compared with each other."""
    scored, facts = _scored(rows), revision.facts
    group = present_group(
        facts["current_version_id"],
        facts["current_qrels_id"],
        [(row.comparison_group, bool(row.is_baseline)) for row in scored],
    )
    compared = [row for row in scored if row.comparison_group == group]
    baselines = [row.pk for row in compared if row.is_baseline]
    return PastBoard(revision.number, group, compared, baselines[-1] if baselines else None)


def _scored(rows: BoardRows) -> list[EntryRow]:
    return [row for row in rows.entries if row.is_public and row.provenance != REPORTED]


def _twins_at(twins: Twins, revisions: Mapping[int, Revision]) -> Twins:
    """Return the twins with the measure that both halves had then."""
    measures = {revisions[half].facts["primary_measure"] for half in twins[:2]}
    return twins._replace(measure=measures.pop() if len(measures) == 1 else "")


def differs(one: EntryCertainty | None) -> bool:
    """Return whether the difference to the baseline is significant in the entry's own test."""
    return one is not None and one.p_baseline is not None and one.p_baseline < ALPHA


class Twins(NamedTuple):
    """Two datasets over one corpus, by id, and their common primary measure, which is empty where they differ."""

    public: int
    hidden: int
    measure: str


class Gap(NamedTuple):
    """How much more a system gains over the baseline on public topics, with the ends of its 95% interval.

    `public` and `hidden` are the two gains. More is better in all of them, whatever the measure.
    """

    value: float
    low: float
    high: float
    public: float
    hidden: float

    def as_data(self) -> dict[str, float | bool]:
        """As plain values, for exports and the API."""
        return {**self._asdict(), "shown": self.shown}

    @property
    def shown(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0


def twins_of(datasets: Collection[int]) -> list[Twins]:
    """Return the twins that include any of these datasets, if both halves have a page. One query."""
    listed = Dataset.objects.filter(Q(pk__in=datasets) | Q(twin_of__in=datasets), twin_of__isnull=False)
    listed = listed.exclude(state=Dataset.State.PREPARING).exclude(twin_of__state=Dataset.State.PREPARING)
    rows = listed.values_list("twin_of", "pk", "primary_measure", "twin_of__primary_measure")
    return [
        Twins(public, hidden, measure if measure == other else "")
        for public, hidden, measure, other in rows
        if public is not None
    ]


#: By dataset and entry id, oldest first: system and configuration of each public result that was scored here.
Results = Mapping[int, Mapping[int, tuple[int, str]]]


def present_results(twins: Collection[Twins]) -> Results:
    """Return the results that both halves of these twins show now. One query."""
    results: dict[int, dict[int, tuple[int, str]]] = {half: {} for each in twins for half in each[:2]}
    shown = Entry.objects.filter(dataset__in=results, visibility=Entry.Visibility.PUBLIC)
    rows = shown.exclude(provenance=Entry.Provenance.REPORTED).order_by("published_at", "pk")
    columns = ("dataset_id", "pk", "system_id", "configuration")
    for dataset, entry, system, configuration in rows.values_list(*columns):
        results[dataset][entry] = system, configuration
    return results


def gaps_between(
    twins: Collection[Twins],
    certain: Mapping[int, BoardCertainty],
    published: Mapping[int, PublishedComparison],
    results: Results,
) -> dict[int, dict[int, Gap]]:
    """Return by dataset, for both halves, the gap of each entry whose system has a public result on the other half.

    Results of one system and configuration belong together, of several the newest; both halves must have the same
    baseline system. `certain`, `published`, and `results` cover all datasets of the `twins`.
    """
    gaps: dict[int, dict[int, Gap]] = {half: {} for each in twins for half in each[:2]}
    for each in twins:
        if not each.measure:
            continue
        of_public, of_hidden = results[each.public], results[each.hidden]
        first, second = (
            _gains(certain.get(half), published.get(half), each.measure)
            for half in (each.public, each.hidden)
        )
        if of_public.get(first.baseline, "") != of_hidden.get(second.baseline):
            continue
        others = {key: entry for entry, key in of_hidden.items() if entry in second.by_entry}
        for entry, key in of_public.items():
            if entry in first.by_entry and (other := others.get(key)) is not None:
                gains = first.by_entry[entry], second.by_entry[other]
                gap = Gap(*gap_between(*gains), *(one.value for one in gains))
                gaps[each.public][entry] = gaps[each.hidden][other] = gap
    return gaps


class _Gains(NamedTuple):
    """The baseline's entry, 0 where there is none, and how much better than it each entry is, with its interval."""

    baseline: int
    by_entry: Mapping[int, Interval]


def _gains(certainty: BoardCertainty | None, published: PublishedComparison | None, measure: str) -> _Gains:
    if published is not None:
        least, step = published.least_difference, published.step
        gains = {
            entry: published_interval(difference, least, step)
            for entry, difference in published.differences.items()
        }
        return _Gains(published.baseline or 0, gains)
    found = certainty.of(measure) if certainty is not None else None
    if found is None:
        return _Gains(0, {})
    gains = {
        entry: Interval(one.delta, *one.delta_interval)
        for entry, one in found.entries.items()
        if one.delta is not None and one.delta_interval is not None
    }
    if better(measure) == "lower":
        gains = {entry: Interval(-one.value, -one.high, -one.low) for entry, one in gains.items()}
    return _Gains(found.baseline or 0, gains)
