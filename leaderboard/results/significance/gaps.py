"""The contamination gap of systems that were scored on a dataset and on its twin (`evaluation.statistics.gap`).

An open half gives the bootstrap interval that its board has of each row's difference to the baseline. A hidden half
gives published values and the least significant difference, which bounds how they spread: a gap tells no more of hidden
judgements than these do (docs/decisions/0053). It is found when it is read, and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from django.db.models import Q

from evaluation.statistics.gap import Interval, gap_between, published_interval
from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry
from leaderboard.results.significance.hidden import PublishedComparison
from leaderboard.results.significance.types import BoardCertainty


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
