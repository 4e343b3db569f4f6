"""What may be said of a result in words: whether it is better than the baseline, and whether it ties with the best.

Every sentence, colour, card, feed and badge takes its certainty from `statements`, which knows how a dataset's
judgements are protected. Open boards say what their tests found. Hidden ones say no more than follows from values that
were published (docs/decisions/0043).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from leaderboard.core.measures import better
from leaderboard.results.significance.gaps import Gap, gaps_between, twins_of
from leaderboard.results.significance.hidden import PublishedComparison, published_comparisons
from leaderboard.results.significance.reading import read_certainty
from leaderboard.results.significance.types import BoardCertainty, EntryCertainty


@dataclass(frozen=True, slots=True)
class Statement:
    """What may be said of one entry under one measure; None: nothing is known, or told.

    `better` and `worse` than the baseline at 0.05, by the entry's own comparison alone, not corrected: False says that
    it was not shown. `p`, over the board `p_corrected`, and `interval` are of the difference to the baseline, over open
    judgements only, as is `worse`, and so are `ranks`, the first and the last that it ties with. The best ties with
    itself. `gap` is the contamination gap between the dataset and its twin, of the primary measure.
    """

    better: bool | None = None
    worse: bool | None = None
    p: float | None = None
    p_corrected: float | None = None
    interval: tuple[float, float] | None = None
    tied_with_best: bool | None = None
    ranks: tuple[int, int] | None = None
    gap: Gap | None = None


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
        found = self.certainty.of(measure) if self.certainty is not None else None
        one = found.of(entry) if found is not None else None
        if one is None:
            return UNKNOWN
        improved, worsened = _against_baseline(one, measure)
        p, corrected = one.p_baseline, one.p_baseline_corrected
        return Statement(improved, worsened, p, corrected, _interval(one), _ties(one), _ranks(one))

    def tied_with_best(self, measure: str) -> frozenset[int]:
        """The ids of the entries that may be the best, the best among them; empty where that is not known."""
        if self.published is not None:
            return self.published.tied if measure == self.published.measure else frozenset()
        found = self.certainty.of(measure) if self.certainty is not None else None
        if found is None:
            return frozenset()
        return frozenset(entry for entry, one in found.entries.items() if _ties(one))

    def least_difference(self, measure: str) -> float | None:
        """Over hidden judgements the least difference to the baseline that is significant, where it is known."""
        if self.published is None or measure != self.published.measure:
            return None
        return self.published.least_difference


#: Of a board of which nothing may be said, or is known.
NOTHING_SAID = BoardStatements()


def gaps_of(datasets: Collection[int]) -> dict[tuple[int, str], Gap]:
    """The contamination gaps of the datasets' entries, by their ids and the measure. One query without twins."""
    twins = {half for each in twins_of(datasets) for half in (each.public, each.hidden)} & {*datasets}
    return {
        (entry, said.gaps_in): gap
        for said in (statements(twins) if twins else {}).values()
        for entry, gap in said.gaps.items()
    }


def statements(datasets: Collection[int]) -> Mapping[int, BoardStatements]:
    """What may be said of each dataset's board as it is now, by the dataset's id; every id has an answer."""
    twins = twins_of(datasets)
    wanted = {*datasets, *(half for each in twins for half in (each.public, each.hidden))}
    found = read_certainty(wanted)
    published = published_comparisons([dataset for dataset in wanted if dataset not in found])
    gaps = gaps_between(twins, found, published) if twins else {}
    measures = {half: each.measure for each in twins for half in (each.public, each.hidden)}
    return {
        dataset: BoardStatements(
            found.get(dataset), published.get(dataset), gaps.get(dataset, {}), measures.get(dataset, "")
        )
        for dataset in datasets
    }


def _against_baseline(one: EntryCertainty, measure: str) -> tuple[bool | None, bool | None]:
    """Whether the 95% interval of the difference lies above 0, or below; the other way round for lower is better."""
    if one.delta_low is None or one.delta_high is None:
        return None, None
    above, below = one.delta_low > 0, one.delta_high < 0
    return (below, above) if better(measure) == "lower" else (above, below)


def _interval(one: EntryCertainty) -> tuple[float, float] | None:
    if one.delta_low is None or one.delta_high is None:
        return None
    return one.delta_low, one.delta_high


def _ties(one: EntryCertainty) -> bool | None:
    return None if one.rank_low is None else one.rank_low == 1


def _ranks(one: EntryCertainty) -> tuple[int, int] | None:
    return None if one.rank_low is None or one.rank_high is None else (one.rank_low, one.rank_high)


def differs(one: EntryCertainty | None) -> bool:
    """Whether the 95% interval of the difference to the baseline excludes 0."""
    return one is not None and (ends := _interval(one)) is not None and not ends[0] <= 0 <= ends[1]
