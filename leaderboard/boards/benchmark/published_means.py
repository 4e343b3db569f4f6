"""Comparison of a paper's printed aggregates with those that follow from its figures for each dataset."""

from collections.abc import Mapping
from typing import NamedTuple

from leaderboard.boards.benchmark.columns import AVERAGE, MEAN_RELATIVE, WINS
from leaderboard.boards.model import BenchmarkFacts, Board
from leaderboard.core.text.numbers import signed
from leaderboard.importing.reported.tables import PublishedAverage
from leaderboard.results.board_rows.entry_rows import REPORTED


class PublishedMeansRow(NamedTuple):
    """A system's computed aggregates, and the `printed` ones."""

    system: str
    slug: str
    wins: int
    ratio: float
    ratios: float
    printed: PublishedAverage

    @property
    def odd(self) -> bool:
        """Whether the numbers of wins differ."""
        return self.printed.wins not in (None, self.wins)

    @property
    def text(self) -> dict[str, str]:
        """Relative differences from BM25 as on the page, with a dash if the paper prints none."""
        average = self.printed.average
        return {
            "ratio_of_means": signed(self.ratio, 1, percent=True),
            "mean_of_ratios": signed(self.ratios, 1, percent=True),
            "average": "—" if average is None else signed(average, 1),
        }


class PublishedMeans(NamedTuple):
    """Comparison of printed and computed aggregates, with the number of datasets and a summary in words."""

    rows: list[PublishedMeansRow]
    counted: int
    measure: str
    locators: list[str]
    sentence: str


def compare_published_means(
    facts: BenchmarkFacts, board: Board, averages: Mapping[str, PublishedAverage]
) -> PublishedMeans | None:
    """Return the comparison with aggregates that a publication prints, or None if no system has both.

    `averages` has the printed aggregates by name of the system.
    """
    rows = []
    for row in board.rows:
        wins, ratio, ratios = (row.value(key) for key in (WINS, AVERAGE, MEAN_RELATIVE))
        name = row.entry.system
        if row.ranked_in == REPORTED and name in averages and isinstance(ratio, float) and isinstance(ratios, float):
            # A baseline has no wins against itself.
            wins = int(wins) if isinstance(wins, float) else 0
            rows.append(PublishedMeansRow(name, row.entry.slug, wins, ratio, ratios, averages[name]))
    if not rows:
        return None
    dataset_count = len(facts.counted)
    return PublishedMeans(
        rows,
        dataset_count,
        facts.measure,
        sorted({locator for row in rows for locator in row.printed.locators}),
        _describe_agreement(rows, dataset_count),
    )


def _describe_agreement(rows: list[PublishedMeansRow], dataset_count: int) -> str:
    """Return sentences that name the formula behind the printed averages, and point out inconsistent numbers of wins.

    If no formula reproduces all averages, the first sentence states how far off each formula is.
    """
    averages = [(system, system.printed.average) for system in rows if system.printed.average is not None]
    exact_readings = [
        name
        for name, get_value in (
            ("the ratio of means", lambda system: system.ratio),
            ("the mean of ratios", lambda system: system.ratios),
        )
        if all(abs(100 * get_value(system) - printed) < 0.05 for system, printed in averages)
    ]
    if exact_readings:
        text = f"The printed average is {exact_readings[0]}."
    else:
        text = (
            f"Neither reading of “average relative to BM25” over the {dataset_count} datasets reproduces the printed "
            f"line exactly: the ratio of means is off by {_deviation(averages, 'ratio')}, the mean of ratios by "
            f"{_deviation(averages, 'ratios')}."
        )
    for system in rows:
        if system.odd:
            text += (
                f" {system.system} wins against BM25 on {system.wins} of {dataset_count} datasets according to the "
                f"paper's own table, not on the printed {system.printed.wins}."
            )
    return text


def _deviation(averages: list[tuple[PublishedMeansRow, float]], name: str) -> str:
    distances = [abs(100 * getattr(system, name) - printed) for system, printed in averages]
    return f"{sum(distances) / len(distances):.1f} points on average, {max(distances):.1f} at most"
