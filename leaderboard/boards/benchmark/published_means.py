"""What a paper prints over all of its datasets, beside what follows from the figures that it prints for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from leaderboard.boards.benchmark import aggregates
from leaderboard.boards.benchmark.aggregates import plain
from leaderboard.boards.benchmark.lines import board_lines
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.core.text.numbers import signed
from leaderboard.importing.reported.tables import PublishedAverage, published_averages
from leaderboard.results.board_rows.rows import BoardRows
from leaderboard.results.kinds import REPORTED


class PublishedMeansRow(NamedTuple):
    """A system's figures as the page writes them, a dash where the paper prints none. `odd`: the wins differ."""

    system: str
    slug: str
    wins: str
    printed_wins: str
    ratio_of_means: str
    mean_of_ratios: str
    printed_average: str
    odd: bool


class PublishedMeans(NamedTuple):
    """The table, over how many datasets, for which measure, and what it comes to in one or two sentences."""

    rows: list[PublishedMeansRow]
    counted: int
    measure: str
    locators: list[str]
    sentence: str


class _Computed(NamedTuple):
    system: str
    slug: str
    wins: int
    ratio: float
    ratios: float
    printed: PublishedAverage


def compare_published_means(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], source: str | None
) -> PublishedMeans | None:
    """The comparison for a benchmark of one publication's figures; None where that prints none over all datasets."""
    printed = published_averages(source, facts.measure) if source else {}
    if not printed:
        return None
    base = board_lines(facts, rows, facts.measure, zero_shot=False)
    scores, baselines = base.tables.of_counted
    wins = aggregates.wins(scores, baselines, lower_is_better=base.tables.lower_is_better).wins
    ratio = plain(aggregates.ratio_of_means(scores, baselines))
    ratios = plain(aggregates.mean_of_ratios(scores, baselines))
    found = []
    for place, line in enumerate(base.lines):
        name, of_means, of_ratios = line.about.system, ratio[place], ratios[place]
        if line.ranked_in != REPORTED or name not in printed or of_means is None or of_ratios is None:
            continue
        found.append(_Computed(name, line.about.slug, wins[place], of_means, of_ratios, printed[name]))
    if not found:
        return None
    counted = len(facts.counted)
    return PublishedMeans(
        [_row(one) for one in found],
        counted,
        facts.measure,
        sorted({locator for one in found for locator in one.printed.locators}),
        _sentence(found, counted),
    )


def _row(one: _Computed) -> PublishedMeansRow:
    printed = one.printed
    return PublishedMeansRow(
        one.system,
        one.slug,
        str(one.wins),
        "—" if printed.wins is None else str(printed.wins),
        signed(one.ratio, 1, percent=True),
        signed(one.ratios, 1, percent=True),
        "—" if printed.average is None else signed(printed.average, 1),
        printed.wins not in (None, one.wins),
    )


def _sentence(found: list[_Computed], counted: int) -> str:
    """Whether either reading reproduces the printed averages, and which printed wins do not follow."""
    averages = [(one, one.printed.average) for one in found if one.printed.average is not None]
    exact = [
        name
        for name, of in (
            ("the ratio of means", lambda one: one.ratio),
            ("the mean of ratios", lambda one: one.ratios),
        )
        if all(abs(100 * of(one) - printed) < 0.05 for one, printed in averages)
    ]
    if exact:
        said = f"The printed average is {exact[0]}."
    else:
        said = (
            f"Neither reading of “average relative to BM25” over the {counted} datasets reproduces the printed line "
            f"exactly: the ratio of means is off by {_deviation(averages, 'ratio')}, the mean of ratios by "
            f"{_deviation(averages, 'ratios')}."
        )
    for one in found:
        if one.printed.wins not in (None, one.wins):
            said += (
                f" {one.system} wins against BM25 on {one.wins} of {counted} datasets by the paper's own table, not on "
                f"the printed {one.printed.wins}."
            )
    return said


def _deviation(averages: list[tuple[_Computed, float]], name: str) -> str:
    """How far a reading is from the printed line."""
    distances = [abs(100 * getattr(one, name) - printed) for one, printed in averages]
    return f"{sum(distances) / len(distances):.1f} points on average, {max(distances):.1f} at most"
