"""Comparison of a paper's printed aggregates with those that follow from its figures for each dataset."""

from collections.abc import Mapping
from typing import NamedTuple

from leaderboard.boards.benchmark.columns import AVERAGE, MEAN_RELATIVE, WINS
from leaderboard.boards.model import BenchmarkFacts, Board
from leaderboard.core.text.numbers import signed
from leaderboard.importing.reported.tables import PublishedAverage
from leaderboard.results.board_rows.entry_rows import REPORTED


class PublishedMeansRow(NamedTuple):
    """A system's aggregates as text, with a dash if the paper prints none; `odd` marks different win counts."""

    system: str
    slug: str
    wins: str
    printed_wins: str
    ratio_of_means: str
    mean_of_ratios: str
    printed_average: str
    odd: bool


class PublishedMeans(NamedTuple):
    """Comparison of printed and computed aggregates, with the number of datasets and a summary in words."""

    rows: list[PublishedMeansRow]
    counted: int
    measure: str
    locators: list[str]
    sentence: str


class _ComputedMeans(NamedTuple):
    system: str
    slug: str
    wins: int
    ratio: float
    ratios: float
    printed: PublishedAverage


def compare_published_means(
    facts: BenchmarkFacts, board: Board, averages: Mapping[str, PublishedAverage]
) -> PublishedMeans | None:
    """Return the comparison with aggregates that a publication prints, or None if no system has both.

    `averages` has the printed aggregates by name of the system.
    """
    computed_means = []
    for row in board.rows:
        wins, ratio, ratios = (row.value(key) for key in (WINS, AVERAGE, MEAN_RELATIVE))
        name = row.entry.system
        if row.ranked_in == REPORTED and name in averages and isinstance(ratio, float) and isinstance(ratios, float):
            # A baseline has no wins against itself.
            wins = int(wins) if isinstance(wins, float) else 0
            computed_means.append(_ComputedMeans(name, row.entry.slug, wins, ratio, ratios, averages[name]))
    if not computed_means:
        return None
    rows = [
        PublishedMeansRow(
            means.system,
            means.slug,
            str(means.wins),
            "—" if means.printed.wins is None else str(means.printed.wins),
            signed(means.ratio, 1, percent=True),
            signed(means.ratios, 1, percent=True),
            "—" if means.printed.average is None else signed(means.printed.average, 1),
            means.printed.wins not in (None, means.wins),
        )
        for means in computed_means
    ]
    dataset_count = len(facts.counted)
    return PublishedMeans(
        rows,
        dataset_count,
        facts.measure,
        sorted({locator for system in computed_means for locator in system.printed.locators}),
        _describe_agreement(computed_means, dataset_count),
    )


def _describe_agreement(computed_means: list[_ComputedMeans], dataset_count: int) -> str:
    """Return sentences that name the formula behind the printed averages, and point out inconsistent numbers of wins.

    If no formula reproduces all averages, the first sentence states how far off each formula is.
    """
    averages = [(system, system.printed.average) for system in computed_means if system.printed.average is not None]
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
    for system in computed_means:
        if system.printed.wins not in (None, system.wins):
            text += (
                f" {system.system} wins against BM25 on {system.wins} of {dataset_count} datasets according to the "
                f"paper's own table, not on the printed {system.printed.wins}."
            )
    return text


def _deviation(averages: list[tuple[_ComputedMeans, float]], name: str) -> str:
    distances = [abs(100 * getattr(system, name) - printed) for system, printed in averages]
    return f"{sum(distances) / len(distances):.1f} points on average, {max(distances):.1f} at most"
